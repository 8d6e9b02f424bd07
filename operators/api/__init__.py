"""The HTTP API over what is known of jobs, devices and experiments, and the dashboard that reads it."""
