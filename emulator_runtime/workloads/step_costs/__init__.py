"""Computes how long a step takes on given devices; the simulator, the operators and the job processes share it."""
