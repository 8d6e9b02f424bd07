"""Runs on a real cluster, each from nothing: a namespace, a scheduler, the jobs; and whatever happens, nothing is left.

Every part of a run is an event loop of its own, so that an interruption between any two of its lines still ends in `clear`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S, to_ns, to_s
from operators.clock import rfc3339_micro
from operators.experiments import arena, probe_policy
from operators.experiments.calibrate import Calibration, calibrated
from operators.experiments.manifests import EXPERIMENT_LABEL, Destination, emujob_document, names_of
from operators.experiments.observing import Orders, Progress, Surroundings, observe
from operators.experiments.present import Present, look
from operators.experiments.probing import Decision, probe_jobs, probes_of
from operators.experiments.records import About, Told, run_record
from operators.experiments.scheduler_process import READY_S, Files, SchedulerProcess, notes_of
from operators.kube import Api
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import RunRecord

PROBE_GATHER_S = 1.0
_PHASE_LIMIT_S = 240.0
_TICK_S = 0.1

T = TypeVar("T")
Ignored: Progress = lambda _ended, _now_s: None  # noqa: E731
