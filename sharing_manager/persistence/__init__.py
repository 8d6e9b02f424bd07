"""What survives a restart of the manager: events, grants, progress, and each device's last lease."""
