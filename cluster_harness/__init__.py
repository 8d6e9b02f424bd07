"""Brings a cluster with emulated GPUs up and down: an engine, node images, kind, routes, the product's images, the chart."""
