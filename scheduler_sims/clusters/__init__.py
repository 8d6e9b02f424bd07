"""The clusters that the scheduler loop can drive: one interface, a simulated and a process-level variant."""
