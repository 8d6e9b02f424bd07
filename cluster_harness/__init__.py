"""Creates and deletes Kubernetes clusters with emulated GPUs: a Docker engine, nodes by kind, the product's images, the chart."""
