"""Trains estimators of kernel times from measurements of real GPUs."""
