"""Only for machines without a container registry: a Docker engine of our own, an image writer, the node image."""
