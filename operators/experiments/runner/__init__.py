"""The runner of a SchedulingExperiment: `emugpu compare --on kubernetes` in a pod, restarted where it stopped."""
