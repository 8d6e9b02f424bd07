"""What `emugpu smi` shows, in the same bytes as the static `nvidia-smi` of job containers (folder smi, in Go)."""
