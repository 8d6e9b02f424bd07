"""Makes EmuJob objects true: a Job of Kubernetes for each, and what became of it as status and events."""
