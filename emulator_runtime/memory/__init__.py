"""GPU memory accounting: what fits on a device, and the out-of-memory error that says why something doesn't."""
