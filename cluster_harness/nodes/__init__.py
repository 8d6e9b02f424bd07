"""Where the nodes of a cluster come from, and kubectl to talk to it."""
