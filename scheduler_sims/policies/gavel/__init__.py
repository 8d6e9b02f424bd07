"""Gavel (Narayanan et al., OSDI 2020): shares of time on each GPU type from an optimisation, realised in rounds.

policy.py        rounds: when to decide, the state, the plan until the next round
 |- problem.py   jobs, GPU types and their speeds as arrays
 |- objectives.py   max-min fairness, finish-time fairness, makespan, throughput, cost: from a problem to shares of time
 |   `- programs.py   their linear programs, solved by HiGHS
 |- queues.py    FIFO and AlloX as Gavel codes them: each job has one GPU type or none
 |- credit.py    the priority mechanism: which jobs run in a round so that all get their shares
 `- seating.py   from GPU types to nodes and devices
"""

from scheduler_sims.policies.gavel.policy import Gavel

__all__ = ["Gavel"]
