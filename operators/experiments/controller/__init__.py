"""The controller of SchedulingExperiments: starts a runner for one at a time, and makes the status from its progress."""
