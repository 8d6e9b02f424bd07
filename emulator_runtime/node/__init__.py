"""The formats and names that all programs of a node share: its directory, inventory and grant files. Standard library only."""
