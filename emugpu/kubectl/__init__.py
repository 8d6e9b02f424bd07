"""`kubectl emugpu`: what a cluster's emulated GPUs and EmuJobs do, read through the API server and never changed."""
