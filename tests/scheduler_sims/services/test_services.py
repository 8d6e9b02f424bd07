"""Services from their file: replicas that follow requests, what can't be, and levels of runs worked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.record import RunRecord, Span
from scheduler_sims.services.service import REPLICA, Service
from scheduler_sims.services.service_levels import service_levels

CLUSTER = "nodes: [{name: n, gpus: 8, gpu_type: V100, cpus: 16}]\n"
JOBS = "job_id,gpu_duration_s\ntrain,100\n"
ONE = "services: [{name: s, service_s: 1, slo_s: 4, within: 0.9, until_s: 100, requests: [{at_s: 0, per_s: 2}]}]\n"
SERVICE = Service("s", Configuration(REPLICA, 1, 1000), 1.0, 4.0, 0.9, ((0.0, 2.0), (10.0, 5.0), (20.0, 1.0)), 30.0)


def times(service: Service) -> dict[str, tuple[float, float | None]]:
    return {job.job_id: (job.submit_s, job.until_s) for job in service.replicas(0)}


def test_a_service_needs_the_least_replicas_that_keep_the_promise():
    for per_s in (0.2, 1.0, 2.0, 5.0, 40.0):
        least = SERVICE.needs(per_s)
        assert SERVICE.answered(per_s, least) >= 0.9 > SERVICE.answered(per_s, least - 1)
    assert SERVICE.needs(0.0) == 0


def test_replicas_follow_the_requests_and_the_last_leaves_first():
    assert [SERVICE.needs(per_s) for per_s in (2.0, 5.0, 1.0)] == [3, 6, 2]
    assert times(SERVICE) == {
        "s/1@0": (0, 30),
        "s/2@0": (0, 30),
        "s/3@0": (0, 20),
        "s/4@10": (10, 20),
        "s/5@10": (10, 20),
        "s/6@10": (10, 20),
    }
    assert [job.row for job in SERVICE.replicas(7)] == [7, 8, 9, 10, 11, 12]


def test_they_follow_late():
    late = times(replace(SERVICE, react_s=4))
    assert late["s/1@0"] == (0, 30) and late["s/3@0"] == (0, 24) and late["s/4@14"] == (14, 24)
    assert set(times(replace(SERVICE, react_s=50))) == {"s/1@0", "s/2@0", "s/3@0"}


def test_on_a_longer_time_line_there_are_as_many():
    assert times(SERVICE.stretched(2))["s/4@20"] == (20, 40)


def test_a_replica_never_ends_by_itself():
    for job in SERVICE.replicas(0):
        assert job.until_s is not None and job.work[REPLICA].duration_s > job.until_s - job.submit_s


def record(*spans: Span) -> RunRecord:
    return RunRecord("p", "simulated", 0, 8, ("n",), (), spans)


def test_levels_of_a_run_by_hand():
    """Three replicas until 10, one of which serves from 2 on; then three where six are needed; none at the end."""
    spans = [Span(f"s/{n}@0", "n", n, 2.0 if n == 3 else 0.0, 20.0) for n in (1, 2, 3)]
    (level,) = service_levels(record(*spans, Span("train", "n", 7, 0.0, 30.0)), [SERVICE], ClusterCosts())
    answered = 2 * 2.0 * SERVICE.answered(2.0, 2) + 8 * 2.0 * SERVICE.answered(2.0, 3) + 10 * 5.0 * 0 + 10 * 1.0 * 0
    assert level.requests == 80
    assert level.in_time == pytest.approx(answered / 80)
    assert (level.replica_s, level.wanted_s) == (58, 30 + 30 + 20 + 3 * 10)


def test_a_replica_serves_when_it_has_started():
    names = ["s/1@0", "s/2@0", "s/3@0", "s/4@10", "s/5@10", "s/6@10"]
    spans = [Span(name, "n", 0, 10.0 * name.endswith("@10"), 31.0) for name in names]
    (level,) = service_levels(record(*spans), [SERVICE], ClusterCosts(start_s=3, warm_up_s=2))
    late = SERVICE.answered(2.0, 3) * 10 + SERVICE.answered(5.0, 6) * 25 + SERVICE.answered(1.0, 2) * 10
    assert level.in_time == pytest.approx(late / 80)
    assert level.replica_s == 25 + 25 + 15 + 3 * 5  # until they aren't wanted, although a stop takes longer


def test_a_replica_serves_until_it_is_asked_to_stop():
    spans = [Span("s/1@0", "n", 0, 0.0, 12.0), Span("s/1@0", "m", 3, 16.0, 31.0)]
    costs = ClusterCosts(checkpoint_s=1.5, stop_s=0.5, restore_s=1)
    assert service_levels(record(*spans), [SERVICE], costs)[0].replica_s == 10 + 13


def test_a_job_that_is_called_like_replicas_is_none():
    assert service_levels(record(Span("s/extra", "n", 0, 0.0, 30.0)), [SERVICE], ClusterCosts())[0].replica_s == 0


def test_names_tell_times_apart():
    phases = ((0.0, 0.0), (1_000_000.0, 1.0), (1_000_001.0, 0.0), (1_000_002.5, 1.0))
    names = sorted(job.job_id for job in replace(SERVICE, requests=phases, until_s=1_000_004.0).replicas(0))
    assert names == ["s/1@1000000", "s/1@1000002.5", "s/2@1000000", "s/2@1000002.5"]


@pytest.fixture
def load(tmp_path: Path):
    def load(services: str, jobs: str = JOBS) -> Experiment:
        for name, text in (("services.yaml", services), ("jobs.csv", jobs), ("cluster.yaml", CLUSTER)):
            (tmp_path / name).write_text(text, encoding="utf-8")
        return Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml").serving(tmp_path / "services.yaml")

    return load


def test_replicas_run_beside_the_jobs(load):
    run = load(ONE).simulate("fifo")
    assert [(job.job_id, job.status) for job in run.jobs] == [
        ("train", "finished"),
        *((f"s/{n}@0", "removed") for n in (1, 2, 3)),
    ]
    assert {job.finish_s for job in run.jobs[1:]} == {101.0}  # a stop waits for the end of the step
    assert run.services[0].in_time >= 0.9
    assert run.notes == ()


def test_a_missed_promise_is_noted(load):
    jobs = "job_id,num_gpus,gpu_duration_s\na,8,50\n"
    run = load(ONE, jobs).simulate("fifo")
    assert run.notes == (f"simulated: {run.services[0]}",)
    assert "were promised" in run.notes[0]
    assert load(ONE.replace("name: s", "name: s, weight: 2"), jobs).simulate("priority").notes == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ((ONE, "services: []"), "services.yaml: services: must be a list of at least one service"),
        ((ONE, "- a"), "services.yaml: must be a mapping with services"),
        (("name: s", "name: a/b"), "services[0].name: must be a text without '/', not 'a/b'"),
        (("name: s, ", ""), "services[0].name: must be a text without '/'"),
        (("slo_s: 4, ", ""), "services[0].slo_s: is missing"),
        (("slo_s", "slo"), "services[0]: unknown field 'slo'"),
        (
            ("within: 0.9", "within: 0.99"),
            "services[0].within: 0.99 is out of reach: requests take 1 s on average, so if none",
        ),
        (("per_s: 2", "per_s: -1"), "services[0].requests[0].per_s: must be a number >= 0"),
        (
            ("per_s: 2", "per_s: 20000"),
            "services[0].requests: 20000 requests a second of 1 s each need more than 10000",
        ),
        (("[{at_s: 0, per_s: 2}]", "[]"), "services[0].requests: must be a list of times and rates"),
        (
            ("per_s: 2}", "per_s: 2}, {at_s: 0, per_s: 3}"),
            "services[0].requests[1].at_s: must be later than the time before",
        ),
        (("at_s: 0", "at_s: 100"), "services[0].until_s: must be later than the last change of requests (100 s)"),
        (("name: s", "name: s, gpu_type: V1000"), "services[0].gpu_type: unknown GPU type 'V1000'"),
        (("name: s", "name: s, gpu_type: [1]"), "services[0].gpu_type: must be a GPU type or a list of them, not 1"),
        (("name: s", "name: s, gpus: 9"), "services.yaml: s: job 's/1@0' is larger than the cluster: needs 9 GPUs"),
    ],
)
def test_what_can_not_be(load, change, problem):
    with pytest.raises(InputError) as caught:
        load(ONE.replace(*change))
    assert problem in str(caught.value)


def test_names_are_used_once(load):
    entry = ONE[len("services: [") : -2]
    with pytest.raises(InputError, match=r"services\[1\].name: 's' is another service's name"):
        load(f"services: [{entry}, {entry}]")
    with pytest.raises(InputError, match=r"services.yaml: s: there are two jobs called 's/2@0'"):
        load(ONE, "job_id,gpu_duration_s\ns/2@0,5\n")
