"""The process-level cluster: a sharing manager per emulated node, a real process per job, one shared clock."""

from scheduler_sims.clusters.local.cluster import LocalCluster, LocalOptions

__all__ = ["LocalCluster", "LocalOptions"]
