"""What the programs of one node agree on: its directory, its inventory, its grant files. Standard library only."""
