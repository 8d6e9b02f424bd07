"""EmuJobs, their schedulers and experiments, and what the dashboard and kubectl show of them."""
