"""Checks what a command needs of this machine before its first step, and reports everything that is missing in one message."""
