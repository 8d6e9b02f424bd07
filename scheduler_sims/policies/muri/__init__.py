"""Muri (Zhao et al., SIGCOMM 2022): jobs that wait for different resources share their GPUs.

policy.py            Muri-S and Muri-L: the order of jobs, and where groups run
 |- grouping.py      which jobs form groups: matching by interleaving efficiency
 `- interleaving.py  how long an iteration of a group takes
"""

from scheduler_sims.policies.muri.policy import MuriL, MuriS

__all__ = ["MuriL", "MuriS"]
