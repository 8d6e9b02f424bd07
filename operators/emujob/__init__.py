"""EmuJobs as schedulers and experiments see them: the nodes on which one could run, and the same job as a row of a workload."""
