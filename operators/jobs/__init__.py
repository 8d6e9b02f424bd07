"""The controller of EmuJobs: creates a Job for each, and reports what became of it as status and events.

`python -m operators.jobs` (__main__.py) runs three parts under one lease: this controller, the controller of
SchedulingExperiments (operators/experiments/controller) and the feed of results (operators/results_feed).
"""
