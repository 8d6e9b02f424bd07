"""What survives a restart of the manager: events, grants, progress, and the device time that was given."""
