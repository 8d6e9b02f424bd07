"""GPU memory accounting: whether a job fits on a device, and the out-of-memory error that explains why it doesn't."""
