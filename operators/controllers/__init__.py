"""What the controllers share: actions and their writes, the work queue, leader election, metrics, the status server, events."""
