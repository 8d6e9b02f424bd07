"""What a command needs of this machine, checked before its first step and reported in one message."""
