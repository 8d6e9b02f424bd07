"""The commands of `emugpu`, one a file."""
