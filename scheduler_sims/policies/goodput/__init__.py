"""Policies that choose GPUs and batch size by goodput: throughput times statistical efficiency.

pollux.py        Pollux: rounds, a genetic search over nodes and numbers of GPUs
 |- speeds.py    its throughput model, fitted to what a job has run with; goodput and the best batch size
 `- genetic.py   the search, on arrays
sia.py           Sia: rounds, an integer program over configurations of GPU type and number
 `- programs.py  the integer program, solved by HiGHS
optimus.py       Optimus: GPUs one by one where they shorten the remaining time most
shapes.py        the numbers of GPUs and nodes that an elastic job can have, for all of them
"""

from scheduler_sims.policies.goodput.optimus import Optimus
from scheduler_sims.policies.goodput.pollux import Pollux
from scheduler_sims.policies.goodput.sia import Sia

__all__ = ["Optimus", "Pollux", "Sia"]
