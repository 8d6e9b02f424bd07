"""Emulated training jobs that run as real processes."""
