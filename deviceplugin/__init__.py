"""Offers a node's emulated GPUs to the kubelet by its device plugin API, and mints a grant for each container that gets some."""
