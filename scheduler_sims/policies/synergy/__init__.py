"""Synergy (Mohan et al., OSDI 2022): CPUs and host memory are divided by need among the jobs of a round, not by GPUs.

policy.py        rounds: when to decide, the state, the plan until the next round
 |- orders.py    the order of jobs: fifo, las, srtf
 |- proportional.py, greedy.py, tune.py    the division of CPUs and memory
 |   `- servers.py    demands of jobs, free capacity of servers
 |- staying.py   maps the servers of a round to nodes and devices such that jobs stay where they are
 `- places.py    the jobs that an event within a round concerns
"""

from scheduler_sims.policies.synergy.policy import Synergy

__all__ = ["Synergy"]
