"""Orders of jobs beside those of single files: by remaining GPU-time, by size, by finish-time fairness; backfill; rounds."""
