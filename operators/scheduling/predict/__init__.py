"""Predicts a job's JCT when it is submitted: the simulator, started from the cluster's present state, in a thread of its own."""
