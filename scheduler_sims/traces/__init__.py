"""Published traces of GPU clusters, and inputs of other simulators, as workloads: a file for each format, and this table."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_sims.traces import acme, gavel, helios, muri, openb, pai, philly, pollux, tiresias
from scheduler_sims.traces.job import TraceFormat

FORMATS: Mapping[str, TraceFormat] = {
    "philly": philly.FORMAT,
    "helios": helios.FORMAT,
    "acme": acme.FORMAT,
    "pai": pai.FORMAT,
    "openb": openb.FORMAT,
    "gavel": gavel.FORMAT,
    "muri": muri.FORMAT,
    "pollux": pollux.FORMAT,
    "tiresias": tiresias.FORMAT,
}
