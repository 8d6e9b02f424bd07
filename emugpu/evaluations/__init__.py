"""Many independent evaluations, in parallel and recorded so that an interrupted command goes on: of `search` and `sweep`."""
