"""What only a machine without a container registry needs: an engine, an image writer, and the image that nodes are made from."""
