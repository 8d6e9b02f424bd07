"""The internal endpoint by which the API reads the results store: served by the jobs controller, read by the API alone."""
