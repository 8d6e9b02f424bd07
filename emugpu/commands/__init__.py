"""What `emugpu` can be told to do, one command a file."""
