"""Commands that work on traces of training programs."""
