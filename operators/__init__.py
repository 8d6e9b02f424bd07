"""What talks to the Kubernetes API server for the whole cluster: controllers, scheduler, experiments, API and dashboard."""
