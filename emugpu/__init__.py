"""The command line: `emugpu` and `kubectl emugpu`."""

VERSION = "0.1.0"
"""Said here, because the package's metadata isn't there in a container that has only the library mounted."""
