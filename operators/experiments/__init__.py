"""Experiments on a real cluster: a workload runs as EmuJobs, and reports are made from their statuses."""
