"""Calibration: before an experiment, probe jobs measure what scheduling actions take on the cluster.

`probes.py` is the table: one entry per probe, with its jobs and the costs that it sets.
"""
