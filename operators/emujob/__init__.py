"""What an EmuJob is: its specification and its words, what it, its Job and its pods look like, and where it could ever run."""
