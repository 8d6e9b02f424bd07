"""Workloads by chance: a table of arrivals, a table of mixes of jobs, and what joins them."""
