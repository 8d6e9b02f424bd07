"""What the pools' nodes can run: which jobs fit on them, what to change for the others, and both as the simulator has them."""
