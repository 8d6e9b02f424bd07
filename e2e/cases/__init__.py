"""The proofs: what the README promises, run on a real cluster."""
