"""Where jobs run, as a choice of its own: any policy with another placement.

policy.py    the policy `placed`, which moves the starts of another policy's plan
 `- rules.py    packed, spread, random, racks, fragmentation: the order in which nodes are tried
"""

from scheduler_sims.policies.placement.policy import Placed

__all__ = ["Placed"]
