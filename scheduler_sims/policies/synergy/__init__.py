"""Synergy (Mohan et al., OSDI 2022): CPUs and host memory are divided among the jobs of a round, not dealt out by GPU.

policy.py        the rounds: when to decide, what to remember, what the plan says until the next round
 |- orders.py    who is served first: fifo, las, srtf
 |- proportional.py, greedy.py, tune.py    who gets which CPUs and memory
 |   `- servers.py    what a job demands, and what is left of the servers
 `- staying.py   from the servers of a round to nodes and devices, so that jobs stay where they are
"""

from scheduler_sims.policies.synergy.policy import Synergy

__all__ = ["Synergy"]
