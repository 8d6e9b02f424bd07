"""Scheduling policies, one file each; this file is the table of their names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from scheduler_sims.interface.policy import Policy
from scheduler_sims.policies.allox import Allox
from scheduler_sims.policies.drf import DrfFifo, DrfSjf
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.gavel import Gavel
from scheduler_sims.policies.goodput import Optimus, Pollux, Sia
from scheduler_sims.policies.las import Las
from scheduler_sims.policies.muri import MuriL, MuriS
from scheduler_sims.policies.placement import Placed
from scheduler_sims.policies.queueing.ftf import Ftf
from scheduler_sims.policies.queueing.priority import Priority
from scheduler_sims.policies.queueing.quota import Quota
from scheduler_sims.policies.queueing.rounds import InRounds
from scheduler_sims.policies.queueing.smallest_first import SmallestFirst
from scheduler_sims.policies.queueing.srsf import Srsf
from scheduler_sims.policies.queueing.themis import Themis
from scheduler_sims.policies.sjf import Sjf
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.policies.tiresias import Gittins, Las1d, Tiresias

POLICIES: Mapping[str, type[Policy]] = MappingProxyType(
    {
        "fifo": Fifo,
        "sjf": Sjf,
        "srtf": Srtf,
        "srsf": Srsf,
        "smallest-first": SmallestFirst,
        "las": Las,
        "tiresias": Tiresias,
        "las-1d": Las1d,
        "gittins": Gittins,
        "drf-fifo": DrfFifo,
        "drf-sjf": DrfSjf,
        "allox": Allox,
        "synergy": Synergy,
        "gavel": Gavel,
        "pollux": Pollux,
        "sia": Sia,
        "optimus": Optimus,
        "muri-s": MuriS,
        "muri-l": MuriL,
        "ftf": Ftf,
        "themis": Themis,
        "quota": Quota,
        "priority": Priority,
        "rounds": InRounds,
        "placed": Placed,
    }
)
