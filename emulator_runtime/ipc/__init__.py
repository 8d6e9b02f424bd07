"""The socket protocol between jobs, sharing manager and clusters: frames, messages, client and server."""
