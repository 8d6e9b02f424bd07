"""Creates and deletes a real Kubernetes cluster with emulated GPUs on any machine."""
