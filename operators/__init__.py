"""Keeps the cluster's view of emulated GPUs right: pools become inventories of nodes, short names become full ones."""
