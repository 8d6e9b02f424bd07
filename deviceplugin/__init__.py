"""Offers a node's emulated GPUs to its kubelet and hands them to containers."""
