"""A run that is submitted and followed, on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.timing.host import wall_ns
from operators.experiments import run as observing
from operators.experiments.emujobs import RunTarget, names_of
from operators.experiments.records import ObservedJob
from operators.experiments.run import Hooks, RunJobs, observe
from operators.kube.api import EMUJOB, ApiAwayError, ConflictError
from operators.kube.informer import Pauses

Specs = Callable[..., JobSpec]
QUICK = Pauses(settle=0.0, first=0.01, longest=0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "_POLL_S", 0.01)


def orders_of(jobs: list[JobSpec], limit_s: float = 10.0) -> RunJobs:
    return RunJobs(jobs, names_of(jobs), RunTarget("exp", "e-1", "s"), wall_ns(), limit_s)


def run(world: Any, orders: RunJobs, **around: Any) -> dict[str, ObservedJob]:
    heard: list[tuple[int, float]] = []
    surroundings = Hooks(wall_ns, lambda *news: heard.append(news), pauses=QUICK, **around)
    told = asyncio.run(observe(world.api(), orders, surroundings))
    assert heard and all(before[0] <= after[0] for before, after in pairwise(heard))
    return {one.job_id: one for one in told}


def test_jobs_are_submitted_in_their_order_at_their_time(world: Any, job_spec: Specs) -> None:
    jobs = [job_spec("late", 0, submit_s=0.3), job_spec("b", 2), job_spec("a", 1)]
    told = run(world, orders_of(jobs))
    assert world.submitted == ["a", "b", "late"]
    notes = [each["metadata"]["annotations"].get("emugpu.dev/batch") for each in world.objects["emujobs"].values()]
    assert notes == ["a/2", "a/2", None]
    assert all(one.settled for one in told.values())
    gap_ns = (told["late"].submitted_ns or 0) - (told["a"].submitted_ns or 0)
    assert 0.25e9 < gap_ns < 2e9


def test_other_jobs_of_the_namespace_are_nobody_s(world: Any, job_spec: Specs) -> None:
    first = run(world, orders_of([job_spec("a")]))
    second = run(world, orders_of([job_spec("b")]))
    assert (list(first), list(second)) == (["a"], ["b"])


def test_a_server_that_is_away_for_a_moment_is_tried_again(world: Any, job_spec: Specs) -> None:
    world.failures["create"] = [ApiAwayError("away"), ApiAwayError("away")]
    world.failures["list"] = [ApiAwayError("away")]
    assert list(run(world, orders_of([job_spec("a")]))) == ["a"]


def test_a_create_whose_answer_was_lost_is_done(world: Any, job_spec: Specs) -> None:
    asyncio.run(_create_first(world, job_spec("a")))
    assert list(run(world, orders_of([job_spec("a")]))) == ["a"]
    assert world.submitted == ["a"]


async def _create_first(world: Any, job: JobSpec) -> None:
    from operators.experiments.emujobs import emujob_document

    await world.api().create(EMUJOB, emujob_document(job, "a", RunTarget("exp", "e-1", "s")))
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("error", [ClusterError("spec.steps: invalid"), *[ApiAwayError("away")]])
def test_a_job_that_is_refused_ends_the_run(world: Any, job_spec: Specs, error: ClusterError) -> None:
    world.failures["create"] = [error] * 10
    with pytest.raises(ClusterError, match=str(error)):
        run(world, orders_of([job_spec("a")]))


def test_a_run_that_can_not_be_followed_ends(world: Any, job_spec: Specs) -> None:
    world.failures["list"] = [ClusterError("emujobs is forbidden")] * 50
    with pytest.raises(ClusterError, match="can't be followed: emujobs is forbidden"):
        run(world, orders_of([job_spec("a")]))


def test_what_the_scheduler_dies_of_ends_the_run(world: Any, job_spec: Specs) -> None:
    def check() -> None:
        raise ClusterError("the scheduler ended")

    with pytest.raises(ClusterError, match="the scheduler ended"):
        run(world, orders_of([job_spec("a")]), check=check)


def test_nobody_waits_for_ever(world: Any, job_spec: Specs) -> None:
    world.job_s = 60.0
    told = run(world, orders_of([job_spec("a")], limit_s=0.1))
    assert (told["a"].phase, told["a"].ended) == ("Queued", False)


def test_the_event_log_s_word_is_waited_for_as_long_as_is_said(
    world: Any, job_spec: Specs, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.silent = {"a"}
    monkeypatch.setattr(observing, "SETTLE_S", 0.3)
    began_ns = wall_ns()
    told = run(world, orders_of([job_spec("a")]))
    assert (told["a"].ended, told["a"].settled) == (True, False)
    assert wall_ns() - began_ns > 0.3e9


def test_a_conflict_is_no_failure_of_the_retry(world: Any, job_spec: Specs) -> None:
    """The server took it, then went away; the second try finds it there."""
    asyncio.run(_create_first(world, job_spec("a")))
    world.failures["create"] = [ApiAwayError("away"), ConflictError("already exists")]
    assert list(run(world, orders_of([job_spec("a")]))) == ["a"]
