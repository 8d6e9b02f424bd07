"""A snapshot of the node, and its Prometheus metrics over HTTP."""
