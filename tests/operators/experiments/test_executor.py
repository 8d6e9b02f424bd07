"""Whole runs on a cluster in memory, with a child process in the scheduler's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.timing.host import wall_ns
from operators.experiments import executor as module
from operators.experiments.calibration.probes import probe_jobs
from operators.experiments.executor import Executor, ExecutorSettings, RunRequest
from operators.kube.api import NAMESPACE, ApiAwayError, ConflictError
from operators.results.predicted import Prediction
from scheduler_sims.inputs.cluster_file import ClusterSpec

pytestmark = pytest.mark.processes
Specs = Callable[..., JobSpec]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAD_S", 0.2)
    monkeypatch.setattr("operators.experiments.run_namespace._POLL_S", 0.01)


@pytest.fixture
def tools(world: Any, tmp_path: Path, scheduler: Callable[..., list[str]]) -> ExecutorSettings:
    options = ("--context", "lab")
    return ExecutorSettings(world.api, wall_ns, tmp_path, lambda _text: None, options, python=scheduler())


class Reported:
    """What a calibration reports."""

    explain = None

    def __init__(self) -> None:
        self.described: list[str] = []
        self.ended: list[int] = []

    def update(self, ended: int, _now_s: float) -> None:
        self.ended.append(ended)

    def describe(self, text: str) -> None:
        self.described.append(text)


def unheard(_ended: int, _now_s: float) -> None:
    pass


def test_a_run_leaves_a_record_and_nothing_else(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, tmp_path: Path
) -> None:
    jobs = [job_spec("a"), job_spec("b", 1, submit_s=0.2)]
    setting = RunRequest("SRTF", jobs, 30.0, policy="srtf", gather_s=1.5, repeat=2)
    record = Executor("1f", tools).observe(setting, two_nodes, unheard)
    assert [(job.job_id, job.status) for job in record.jobs] == [("a", "finished"), ("b", "finished")]
    assert (record.policy, record.repeat, record.cluster, record.decisions) == ("SRTF", 2, "kubernetes", 0)
    assert world.objects["namespaces"] == {} and world.objects["emujobs"] == {}
    said = (tmp_path / "exp-1f-1.log").read_text()
    assert "scheduler --policy srtf --name exp-1f-1 --namespace emugpu-exp-1f-1 --decide-every 1.5 --json" in said
    assert "--until-done emugpu.dev/experiment=1f-1 --jobs 2 --context lab" in said


def test_each_run_has_a_namespace_of_its_own(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec
) -> None:
    laboratory = Executor("1f", tools)
    for _ in range(2):
        laboratory.observe(RunRequest("volcano", [job_spec("a")], 30.0, pod_scheduler="volcano"), two_nodes, unheard)
    assert [name for kind, plural, name in world.log if (kind, plural) == ("create", "namespaces")] == [
        *("emugpu-exp-1f-1", "emugpu-exp-1f-2")
    ]


def test_kubernetes_own_scheduler_needs_no_program(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SchedulerProcess", None)  # calling it would fail
    kept = Executor("1f", replace(tools, keep=True))
    record = kept.observe(RunRequest("volcano", [job_spec("a")], 30.0, pod_scheduler="volcano"), two_nodes, unheard)
    assert (record.decisions, record.jobs[0].status) == (0, "finished")
    (document,) = world.objects["emujobs"].values()
    assert document["spec"]["scheduler"] == {"schedulerName": "volcano"}
    assert list(world.objects["namespaces"]) == ["emugpu-exp-1f-1"]


def test_an_interruption_leaves_nothing(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    end = module.SchedulerProcess.end
    monkeypatch.setattr(module.SchedulerProcess, "end", lambda self: (ended.append(self.pid), end(self)))

    def interrupted(_ended: int, now_s: float) -> None:
        if now_s > 0.1:
            raise KeyboardInterrupt

    world.job_s = 60.0
    with pytest.raises(KeyboardInterrupt):
        Executor("1f", tools).observe(RunRequest("s", [job_spec("a")], 30.0, policy="sjf"), two_nodes, interrupted)
    assert world.objects["namespaces"] == {} and world.objects["emujobs"] == {}
    assert ended and ended[0] > 0


def test_a_scheduler_that_never_gets_ready_ends_the_run(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READY_S", 1.5)
    mute = replace(tools, python=("sh", "-c", "echo stuck >&2; exec sleep 600"))
    with pytest.raises(ClusterError, match=r"is not ready after 1.5 s: stuck"):
        Executor("1f", mute).observe(RunRequest("s", [job_spec("a")], 30.0, policy="sjf"), two_nodes, unheard)
    assert world.objects["namespaces"] == {}
    assert world.submitted == []


def test_somebody_else_s_namespace_is_left_as_it_is(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec
) -> None:
    world.put(NAMESPACE, {"metadata": {"name": "emugpu-exp-1f-1"}})
    with pytest.raises(ConflictError):
        Executor("1f", tools).observe(RunRequest("s", [job_spec("a")], 30.0, policy="sjf"), two_nodes, unheard)
    assert list(world.objects["namespaces"]) == ["emugpu-exp-1f-1"]


def test_a_namespace_that_was_made_though_nobody_said_so_goes(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = world.create

    async def made_without_an_answer(*given: Any) -> dict[str, Any]:
        await create(*given)
        raise ApiAwayError("the API server is away")

    monkeypatch.setattr(world, "create", made_without_an_answer)
    with pytest.raises(ApiAwayError):
        Executor("1f", tools).observe(RunRequest("s", [job_spec("a")], 30.0, policy="sjf"), two_nodes, unheard)
    assert world.objects["namespaces"] == {}


def test_why_a_run_failed_is_raised_and_what_it_left_is_said(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.experiments.run_namespace.DELETED_S", 0.1)
    monkeypatch.setattr(module, "READY_S", 0.1)
    world.stays = True
    said: list[str] = []
    mute = replace(tools, say=said.append, python=("sh", "-c", "exec sleep 600"))
    with pytest.raises(ClusterError, match="the scheduler is not ready after"):
        Executor("1f", mute).observe(RunRequest("s", [job_spec("a")], 30.0, policy="sjf"), two_nodes, unheard)
    assert [line for line in said if "namespace emugpu-exp-1f-1 is still being deleted after 0.1 s" in line]


def test_a_namespace_that_stays_after_a_run_that_came_through_is_an_error(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.experiments.run_namespace.DELETED_S", 0.1)
    world.stays = True
    with pytest.raises(ClusterError, match="namespace emugpu-exp-1f-1 is still being deleted"):
        Executor("1f", tools).observe(
            RunRequest("volcano", [job_spec("a")], 30.0, pod_scheduler="volcano"), two_nodes, unheard
        )


def test_probes_that_do_not_come_through_are_reported(
    world: Any, tools: ExecutorSettings, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no decision ever names them, so nothing can be measured."""
    jobs = probe_jobs(two_nodes)
    some = {name: jobs[name] for name in ("warm_up", "burst", "chain")}
    reporter = Reported()
    with pytest.raises(ClusterError, match="0 alone, 0 of the burst and 0 of the chain"):
        Executor("1f", tools).calibrate(some, 0.3, reporter)
    assert reporter.described == [
        "probe 1 of 3: 2 probe jobs of the warm-up",
        "probe 2 of 3: 2 probe jobs started at once",
        "probe 3 of 3: 10 probe jobs started one after the other",
    ]
    assert reporter.ended == sorted(reporter.ended) and reporter.ended[-1] == 14
    assert world.objects["namespaces"] == {}


def test_a_probe_of_which_no_job_ends_ends_the_calibration_and_says_what_it_waits_for(
    world: Any, tools: ExecutorSettings, two_nodes: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROBE_LIMIT_S", 4.0)
    monkeypatch.setattr("operators.experiments.run.STALLED_S", 0.2)
    world.job_s = 600.0
    said: list[str] = []
    stuck = replace(tools, say=said.append)
    with pytest.raises(ClusterError, match=r"none of the 2 probe jobs of the warm-up ended within 4 s: .*2 Queued"):
        Executor("1f", stuck).calibrate(probe_jobs(two_nodes), 0.3, Reported())
    assert [line for line in said if line.startswith("no progress for ") and "0 of 2 jobs have ended, 2 Queued" in line]
    assert world.objects["namespaces"] == {}


def test_what_a_scheduler_can_never_carry_out_ends_the_calibration_at_once(
    world: Any, tools: ExecutorSettings, two_nodes: ClusterSpec, scheduler: Callable[..., list[str]]
) -> None:
    code = """
print(json.dumps({"complaint": "job 'warm-up-0' needs 1 CPU", "job": "warm-up-0", "retry": False}), flush=True)
time.sleep(600)
"""
    world.job_s = 600.0
    with pytest.raises(ClusterError, match="the scheduler can't go on: job 'warm-up-0' needs 1 CPU"):
        Executor("1f", replace(tools, python=scheduler(code))).calibrate(probe_jobs(two_nodes), 0.3, Reported())
    assert world.objects["namespaces"] == {}


def test_a_run_carries_its_policy_and_each_job_its_prediction(
    world: Any, tools: ExecutorSettings, job_spec: Specs, two_nodes: ClusterSpec
) -> None:
    request = RunRequest(
        "las:threshold_s=300", [job_spec("a"), job_spec("b", 1)], 30.0, "las:threshold_s=300", repeat=2
    )
    Executor("1f", replace(tools, keep=True)).observe(replace(request, predicted={"a": 41.5}), two_nodes, unheard)
    marks = {"emugpu.dev/policy": "las:threshold_s=300", "emugpu.dev/repeat": "2"}
    (namespace,) = world.objects["namespaces"].values()
    for document in (namespace, *world.objects["emujobs"].values()):
        assert document["metadata"]["labels"]["emugpu.dev/policy"] == "las-threshold_s-300"
        assert marks.items() <= document["metadata"]["annotations"].items()
    predictions = {
        document["metadata"]["name"]: document["metadata"]["annotations"].get("emugpu.dev/predicted")
        for document in world.objects["emujobs"].values()
    }
    assert predictions["b"] is None
    found = Prediction.from_json(predictions["a"], "a")
    assert (found.seconds, found.by) == (41.5, "las:threshold_s=300")
    assert abs(found.at_ns - wall_ns()) < 60e9


def test_jobs_without_a_form_are_found_before_anything_runs(tools: ExecutorSettings, job_spec: Specs) -> None:
    laboratory = Executor("1f", tools)
    job = job_spec("a", cpu_s=100.0)
    on_cpu = replace(job, configurations=job.configurations[1:])
    laboratory.check_jobs([on_cpu], by_kubernetes=False)
    with pytest.raises(InputError, match="runs on CPUs only"):
        laboratory.check_jobs([on_cpu], by_kubernetes=True)


def test_a_decision_before_all_jobs_of_the_first_instant_had_come_is_noted(job_spec: Specs) -> None:
    jobs = [job_spec("a"), job_spec("b", 1), job_spec("c", 2), job_spec("d", 3, submit_s=9.0)]
    assert module._too_early(jobs, [0, 0, 2, 3]) == [
        "the scheduler's first decision knew 2 of the 3 jobs that were submitted together"
    ]
    assert module._too_early(jobs, [0, 3, 2]) == module._too_early(jobs, []) == []
