"""One module per command of `kubectl emugpu`."""
