"""Estimates of kernel times that are learned from measurements."""
