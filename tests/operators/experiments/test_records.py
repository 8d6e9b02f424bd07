from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import JobSpec
from operators.experiments.records import RunInfo, observed_job, run_record
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import Span

START_NS = 1_767_225_600_000_000_000
S = 1_000_000_000
ABOUT = RunInfo("allox", 1, START_NS + 100 * S, wall_s=99.5, decisions=7, notes=("scheduler restarted",))

EmuJob = Callable[..., dict[str, Any]]
Specs = Callable[..., JobSpec]


@pytest.fixture
def run(time_at: Callable[[float], str]) -> Callable[..., dict[str, Any]]:
    """A run as a status has it."""

    def run(node: str, begin: float, end: float, *devices: str, ended: str = "finished") -> dict[str, Any]:
        return {"node": node, "devices": list(devices), "from": time_at(begin), "to": time_at(end), "ended": ended}

    return run


GPU = device_uuid("w1", 0)


def test_a_preempted_job_on_gpu_and_cpu(
    emujob: EmuJob, job_spec: Specs, run: EmuJob, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    runs = [run("w1", 3, 8.5, GPU, ended="released"), run("w2", 12, 20.000001)]
    status = {
        "phase": "Succeeded",
        "submittedAt": time_at(1),
        "startedAt": time_at(3),
        "finishedAt": time_at(20.000001),
    }
    told = observed_job(emujob("A", **status, runs=runs, preemptions=1))
    assert told.settled
    record = run_record(ABOUT, [job_spec("A", submit_s=1.0)], [told], two_nodes)
    (job,) = record.jobs
    assert (job.submit_s, job.start_s, job.finish_s, job.preemptions) == (1.0, 3.0, 20.000001, 1)
    assert (job.status, job.devices, job.user, job.row) == ("finished", ("w1/0", "w2/cpu"), "ann", 0)
    assert record.spans == (Span("A", "w1", 0, 3.0, 8.5), Span("A", "w2", None, 12.0, 20.000001))
    assert (record.cluster, record.policy, record.repeat, record.gpus) == ("kubernetes", "allox", 1, 1)
    assert (record.nodes, record.wall_s, record.decisions) == (("w1", "w2"), 99.5, 7)
    assert record.notes == ("scheduler restarted",)


def test_the_epoch_is_the_best_submission_and_the_others_are_late(
    emujob: EmuJob, job_spec: Specs, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    told = [
        observed_job(emujob(name, phase="Failed", submittedAt=time_at(50 + at)))
        for name, at in (("a", 0.25), ("b", 0.5), ("c", 10.2))
    ]
    jobs = [job_spec("a"), job_spec("b", row=1), job_spec("c", row=2, submit_s=10.0)]
    record = run_record(ABOUT, jobs, told, two_nodes)
    assert [round(job.submit_s, 6) for job in record.jobs] == [0.05, 0.3, 10.0]
    assert (record.lag["submit"].count, record.lag["submit"].max_s) == (3, pytest.approx(0.3))


def test_what_did_not_finish_is_a_failure_with_a_reason(
    emujob: EmuJob, job_spec: Specs, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    wrong = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]
    large = [{"type": "Accepted", "status": "False", "reason": "NoNode", "message": "needs 8 GPUs"}]
    documents = [
        emujob("f", phase="Failed", submittedAt=time_at(0), finishedAt=time_at(9), conditions=wrong),
        emujob("r", phase="Rejected", submittedAt=time_at(0), conditions=large),
        emujob("q", phase="Queued", submittedAt=time_at(0)),
        emujob("n"),
    ]
    jobs = [job_spec(name, row=row) for row, name in enumerate("frqn?")]
    record = run_record(ABOUT, jobs, map(observed_job, documents), two_nodes)
    assert [(job.status, job.reason, job.finish_s) for job in record.jobs] == [
        ("failed", "too often", 9.0),
        ("failed", "needs 8 GPUs", 100.0),
        ("failed", "had not ended when the run was given up (phase Queued)", 100.0),
        ("failed", "the operator never saw it", 100.0),
        ("failed", "the operator never saw it", 100.0),
    ]


def test_an_end_that_only_kubernetes_told_is_not_settled_and_is_noted(
    emujob: EmuJob, job_spec: Specs, run: EmuJob, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    open_run = {"node": "w1", "devices": [GPU], "from": time_at(1)}
    status = {"phase": "Succeeded", "submittedAt": time_at(0), "finishedAt": time_at(9)}
    for runs in ([], [open_run], [run("w1", 1, 8.2, GPU)]):
        told = observed_job(emujob("a", **status, runs=runs))
        assert told.ended and not told.settled
        record = run_record(replace(ABOUT, notes=()), [job_spec("a")], [told], two_nodes)
        assert record.jobs[0].finish_s == 9.0
        assert record.notes == ("the event log has no end of a: their times are those of Kubernetes, in whole seconds",)


def test_a_job_of_many_runs_says_that_some_are_missing(
    emujob: EmuJob, job_spec: Specs, run: EmuJob, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    runs = [run("w1", at, at + 1, GPU) for at in range(20)]
    told = observed_job(
        emujob("a", phase="Succeeded", submittedAt=time_at(0), finishedAt=time_at(20), runs=runs, preemptions=25)
    )
    record = run_record(replace(ABOUT, notes=()), [job_spec("a")], [told], two_nodes)
    assert (len(record.spans), record.notes) == (20, ("the Gantt chart shows only the newest 20 runs of a",))


def test_odd_statuses_are_read_as_nothing(emujob: EmuJob, job_spec: Specs, two_nodes: ClusterSpec) -> None:
    told = observed_job({"metadata": {"name": "a"}, "status": {"runs": [{"from": "soon"}, 3], "submittedAt": 7}})
    assert (told.job_id, told.runs, told.submitted_ns, told.ended) == ("a", (), None, False)
    record = run_record(ABOUT, [job_spec("a")], [told], two_nodes)
    assert record.lag == {}


def test_a_device_that_the_cluster_does_not_have_is_left_out(
    emujob: EmuJob, job_spec: Specs, run: EmuJob, two_nodes: ClusterSpec, time_at: Callable[[float], str]
) -> None:
    status = {"phase": "Succeeded", "submittedAt": time_at(0), "finishedAt": time_at(9)}
    told = observed_job(emujob("a", **status, runs=[run("w1", 1, 9, "GPU-of-elsewhere", GPU)]))
    record = run_record(ABOUT, [job_spec("a")], [told], two_nodes)
    assert record.jobs[0].devices == ("w1/0",)
