"""Everything that talks to the Kubernetes API server for the whole cluster: controllers, scheduler, experiments, API
and dashboard.

pools/  jobs/  experiments/controller/     the three controllers: EmuGPUPools, EmuJobs, SchedulingExperiments
scheduling/                                the job-level scheduler
experiments/                               `compare --on kubernetes`, and the runner of a SchedulingExperiment
results/  results_feed/  api/              what jobs took: gathered, passed on, served with the dashboard
admission/  chart_hooks/                   the webhook; programs before an install, an upgrade or an uninstall

fitting/       what the pools' nodes can run
controllers/   what controllers share: queue, leader election, writes, metrics
objects/       typed models of EmuJobs, pools, experiments, nodes, pods and Jobs
kube/          the client of the API server
"""
