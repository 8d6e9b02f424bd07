"""The scheduler loop: turns events into views for a policy, and its plans into actions, on any cluster."""
