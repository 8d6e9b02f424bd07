"""A real Kubernetes cluster with emulated GPUs on any machine, and the proofs that run on it."""
