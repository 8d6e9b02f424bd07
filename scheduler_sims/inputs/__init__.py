"""Workload and cluster files, read and checked, and what their jobs really cost."""
