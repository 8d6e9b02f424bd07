"""Who gets device time next: pure code, one file per sharing mode."""
