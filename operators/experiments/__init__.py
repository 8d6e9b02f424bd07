"""Experiments on a real cluster: a workload as EmuJobs, and what became of them as the record that all reports are made of."""
