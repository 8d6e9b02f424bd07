"""Tiresias (Gu et al., NSDI 2019): queues by attained service, for clusters where run times are unknown.

policy.py        the policies: two-dimensional (GPU-seconds) and one-dimensional LAS, with promotion and Gittins order
 |- queues.py    which queue each job is in, and its place there
 `- gittins.py   the Gittins index of a job from the service of earlier jobs
"""

from scheduler_sims.policies.tiresias.policy import Gittins, Las1d, Tiresias

__all__ = ["Gittins", "Las1d", "Tiresias"]
