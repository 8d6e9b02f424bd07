"""The process-level cluster: a sharing manager per emulated node, a real process per job, one shared clock."""

from scheduler_sims.clusters.local.cluster import LocalCluster
from scheduler_sims.clusters.local.options import LocalOptions
from scheduler_sims.clusters.local.programs import check_programs

__all__ = ["LocalCluster", "LocalOptions", "check_programs"]
