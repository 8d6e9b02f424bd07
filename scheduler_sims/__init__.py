"""Scheduling policies, the scheduler loop, and the simulated and local clusters."""
