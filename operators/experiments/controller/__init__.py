"""SchedulingExperiments: one at a time gets a runner, and what the runner tells becomes the status."""
