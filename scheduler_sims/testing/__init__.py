"""What authors of policies test them with: views from short descriptions, and the invariants that any policy must keep."""

from scheduler_sims.testing.invariants import Terms, check_policy
from scheduler_sims.testing.views import Job, Node, TableEstimates, cluster_view, places

__all__ = ["Job", "Node", "TableEstimates", "Terms", "check_policy", "cluster_view", "places"]
