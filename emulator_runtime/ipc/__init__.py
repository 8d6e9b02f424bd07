"""The socket contract between job, sharing manager and cluster: frames, messages, client and server."""
