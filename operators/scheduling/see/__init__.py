"""What the API server shows: typed objects, the stores that watches fill, the state of one job, the capacity of all nodes."""
