"""What the pools' nodes can run: whether an EmuJob fits on them, and both as the simulator describes them."""
