"""Pods with emulated GPUs: requests, counting, sharing, isolation, accuracy and metrics."""
