"""The runner of a SchedulingExperiment: `emugpu compare --on kubernetes` in a pod, which survives its own death."""
