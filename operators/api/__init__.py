"""The HTTP API for jobs, devices and experiments, and the dashboard that uses it."""
