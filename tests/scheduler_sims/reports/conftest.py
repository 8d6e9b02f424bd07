"""Small records by hand: jobs A, B, ... on one node, so that every figure can be checked with a pencil."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from scheduler_sims.record import JobRecord, LagAccount, RunRecord, Span

HOSTILE = "</script><script>alert('x')</script><img src=http://evil.example/a.png onerror=alert(1)>&amp;\""


def make_job(job_id: str, submit: float, start: float | None, finish: float, **others: object) -> JobRecord:
    job = JobRecord(job_id, "alice", 0, submit, start, finish, 0, ("node-0/0",) if start is not None else ())
    return replace(job, **others)


def make_run(jobs: Sequence[JobRecord], spans: Sequence[Span] | None = None, **others: object) -> RunRecord:
    if spans is None:
        spans = [Span(job.job_id, "node-0", 0, job.start_s, job.finish_s) for job in jobs if job.start_s is not None]
    run = RunRecord("fifo", "simulated", 0, 2, ("node-0",), tuple(jobs), tuple(spans))
    return replace(run, **others)


@pytest.fixture
def job() -> Callable[..., JobRecord]:
    return make_job


@pytest.fixture
def run() -> Callable[..., RunRecord]:
    return make_run


@pytest.fixture
def hostile() -> str:
    return HOSTILE


def _scaled(policy: str, cluster: str, repeat: int, factor: float) -> RunRecord:
    jobs = [
        make_job("a", 0.0, 0.0, 10.0 * factor),
        make_job("b", 0.0, 10.0 * factor, 30.0 * factor, user="bob", preemptions=1),
        make_job("c", 5.0, 5.0, 45.0 * factor, devices=("node-0/1", "cpu-0/cpu")),
    ]
    spans = [
        Span("a", "node-0", 0, 0.0, 10.0 * factor),
        Span("b", "node-0", 0, 10.0 * factor, 20.0 * factor),
        Span("b", "node-0", 0, 22.0 * factor, 30.0 * factor),
        Span("c", "node-0", 1, 5.0, 40.0 * factor),
        Span("c", "cpu-0", None, 40.0 * factor, 45.0 * factor),
    ]
    lag = {} if cluster == "simulated" else {"step": LagAccount(100, 0.0001, 0.002, 0.03)}
    return make_run(jobs, spans, policy=policy, cluster=cluster, repeat=repeat, nodes=("node-0", "cpu-0"), lag=lag)


@pytest.fixture
def runs() -> list[RunRecord]:
    """Two policies, each predicted once and observed twice; las is 10% slower everywhere."""
    return [
        _scaled(policy, cluster, repeat, slow * factor)
        for policy, slow in (("fifo", 1.0), ("las", 1.1))
        for cluster, repeat, factor in (("simulated", 0, 1.0), ("local", 1, 1.01), ("local", 2, 1.03))
    ]
