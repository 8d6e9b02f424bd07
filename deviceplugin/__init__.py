"""Announces a node's emulated GPUs to the kubelet. Not built yet: the first release runs on one machine."""
