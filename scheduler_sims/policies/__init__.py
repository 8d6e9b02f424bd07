"""Scheduling policies, one file each; this file is the table of their names."""
