"""Scheduling policies, the loop that drives them, and the clusters (simulated, local) that they can be run on."""
