"""Inference services beside training: replicas that follow the requests, and how many requests were answered in time."""
