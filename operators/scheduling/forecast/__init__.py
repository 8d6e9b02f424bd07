"""Predicted completion times of submitted jobs: the simulator continues from the present state, in a thread of its own."""
