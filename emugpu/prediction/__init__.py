"""What the commands that work on traces consist of, where it is more than the command itself."""
