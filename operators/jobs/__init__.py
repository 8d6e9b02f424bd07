"""The controller of EmuJobs: creates a Job for each, and reports what became of it as status and events."""
