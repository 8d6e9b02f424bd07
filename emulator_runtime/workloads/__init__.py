"""Ready-made training jobs that run as real processes."""
