"""Whatever happens to an EmuJob's Job and pods, in any order: the promises of the planner hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from operators.controllers.actions import SuspendJob

Worlds = Any
WORK: dict[str, Any] = {"steps": 100, "model": "resnet50", "batchSize": 64}
ACTUATORS = ("none", "jobs", "gated", "binding")
HAPPENINGS = (
    *(
        "kubernetes",
        "allocate",
        "preempt",
        "reject",
        "evict",
        "fail",
        "pod_done",
        "complete",
        "wrong",
        "hold",
        "let_go",
    ),
    *("job_deleted", "pools_go", "pools_come", "time", "nobody_looks"),
)
MODEST = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)


def scheduler(actuator: str) -> dict[str, Any]:
    own = {"schedulerName": "observed"} if actuator == "binding" else {}
    return {} if actuator == "none" else {"scheduler": {"actuator": actuator, "name": "s", **own}}


def happen(at: Any, what: str) -> None:
    """One thing that somebody else does; what makes no sense at the moment doesn't happen."""
    job = at.job
    if what == "time":
        at.later(7)
    elif what in ("pools_go", "pools_come"):
        at.offers = () if what == "pools_go" else type(at)(WORK).offers
    elif what in ("hold", "let_go"):
        at.spec["suspend"] = what == "hold"
    elif what == "kubernetes":
        at.kubernetes()
    elif job is None or job.deleting or job.finished:
        return
    elif what == "allocate" and "scheduler" in at.spec:
        at.allocate()
    elif what == "preempt":
        at.change(suspended=True)
    elif what in ("reject", "fail"):
        at.end_pod(rejected=what == "reject")
    elif what == "evict":  # ignored by the Job's policy: not counted as failed
        before = job.failed
        at.end_pod()
        at.change(failed=before)
    elif what == "pod_done":
        at.end_pod("Succeeded")
    elif what == "complete" and not job.suspended and at.pods:
        at.complete()
    elif what == "wrong" and not job.suspended:
        at.change(failure_reason="PodFailurePolicy", failure="exit code 64", completed="2026-01-01T00:01:00Z")
    elif what == "job_deleted":
        at.change(deleting=True)


histories = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.booleans()), max_size=30)


@MODEST
@given(st.sampled_from(ACTUATORS), st.sampled_from((1, 2)), histories)
def test_any_history(world: Worlds, actuator: str, nodes: int, history: list[tuple[str, bool]]) -> None:
    """Never two Jobs (the world checks it); a scheduler's Job is never resumed; ends are final; counts never go back."""
    at = world({**WORK, "nodes": nodes, **scheduler(actuator)})
    failures = 0
    for what, looks in history:
        before = dict(at.status)
        failures += what == "fail" and at.job is not None
        happen(at, what)
        if not looks:
            continue
        actions = at.settle()
        assert at.settle() == []  # at rest: the same things seen again ask for nothing
        suspends = [action.suspend for action in actions if isinstance(action, SuspendJob)]
        if actuator == "jobs":
            assert False not in suspends
        assert True not in suspends or at.spec["suspend"]
        if before.get("phase") in ("Succeeded", "Failed"):
            assert at.status["phase"] == before["phase"]
        for count in ("preemptions", "rejections", "stepsDone"):
            assert at.status.get(count, 0) >= before.get(count, 0), count
        assert at.status["failures" if at.job is not None else "rejections"] >= 0
        assert at.status.get("failures", 0) <= failures


@MODEST
@given(st.lists(st.sampled_from(("preempt", "reject", "evict", "kubernetes", "allocate", "time", "nobody_looks"))))
def test_preemption_and_rejection_are_never_failures(world: Worlds, history: list[str]) -> None:
    at = world({**WORK, **scheduler("jobs")})
    for what in history:
        happen(at, what)
        if what != "nobody_looks":
            at.settle()
    assert at.status.get("failures", 0) == 0
    assert at.status.get("phase", "Pending") not in ("Failed", "Succeeded")


@MODEST
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_every_preemption_is_counted_once(world: Worlds, looks: list[int]) -> None:
    """`looks`: bits that say whether the controller looks after the suspension, and after the pods are gone."""
    at = world({**WORK, **scheduler("jobs")})
    at.settle()
    for times, look in enumerate(looks):
        at.later(2)
        at.allocate()
        at.kubernetes()
        at.settle()
        assert (at.status["phase"], at.status["preemptions"]) == ("Running", times)
        at.later(2)
        at.change(suspended=True)
        if look & 1:
            at.settle()
        at.kubernetes()
        if look & 2:
            at.settle()


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_job_is_made_once_however_often_it_is_looked_at(world: Worlds, actuator: str) -> None:
    at = world({**WORK, **scheduler(actuator)})
    for _ in range(5):
        at.settle()
        at.kubernetes()
    assert len(at.documents) == 1
    assert at.documents[0]["spec"]["suspend"] is (actuator == "jobs")
