"""Helios: jobs of SenseTime, 2020 (Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
Datacenters", SC 2021; schema: README.md of S-Lab-System-Group/HeliosData). Its times have no zone."""

from __future__ import annotations

from scheduler_sims.traces.job import TraceFormat
from scheduler_sims.traces.slurm_log import read_log

FORMAT = TraceFormat(
    "SenseTime Helios, 2020",
    "cluster_log.csv",
    "github.com/S-Lab-System-Group/HeliosData",
    lambda source: read_log(source, "vc"),
)
