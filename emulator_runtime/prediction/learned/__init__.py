"""Estimates of kernel times that are learned from measurements: features, trees, the file that has them, the estimator."""
