"""Calibration: probe jobs measure what scheduling actions take on a cluster, before an experiment."""
