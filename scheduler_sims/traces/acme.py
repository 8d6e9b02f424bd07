"""Acme: jobs of the Shanghai AI Laboratory, 2023 (Hu et al., "Characterization of Large Language Model Development in the
Datacenter", NSDI 2024; schema: README.md of InternLM/AcmeTrace). Its times have a zone, its memory is in GB (10^9) for each pod,
of which each node of a job has one."""

from __future__ import annotations

from scheduler_sims.traces.job import TraceFormat
from scheduler_sims.traces.slurm_log import read_log

FORMAT = TraceFormat(
    "Shanghai AI Laboratory Acme, 2023",
    "trace_seren.csv, trace_kalos.csv",
    "github.com/InternLM/AcmeTrace",
    lambda source: read_log(source, "type"),
)
