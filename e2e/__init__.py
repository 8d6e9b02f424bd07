"""The proofs that run on a real cluster."""
