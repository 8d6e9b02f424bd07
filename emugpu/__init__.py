"""The front door: the `emugpu` command line and the names that users import."""
