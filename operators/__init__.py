"""Turns custom resources into jobs on Kubernetes. Not built yet: the first release runs on one machine."""
