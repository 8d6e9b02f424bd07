"""The border to the API server: client, cache, watches, leader election, work queue, writes, and the forms of values."""
