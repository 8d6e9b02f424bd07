"""A job-level scheduler on Kubernetes: the policies and the loop of the simulator over EmuJobs, by patches of their objects."""
