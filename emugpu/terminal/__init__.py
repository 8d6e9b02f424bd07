"""Results, progress bars and steps on a terminal, for all commands."""
