"""AlloX: jobs on GPUs or CPUs by a matching with machines and queue positions."""

from scheduler_sims.policies.allox.policy import Allox

__all__ = ["Allox"]
