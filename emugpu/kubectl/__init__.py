"""`kubectl emugpu`: shows a cluster's emulated GPUs and EmuJobs; reads through the API server and changes nothing."""
