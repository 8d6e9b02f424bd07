"""Attempts at an experiment on a cluster in memory: what they tell and keep, and how the next one goes on after a death."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError, EmuGpuError, InputError, PolicyError
from emulator_runtime.timing.host import wall_ns
from operators.experiments import executor
from operators.experiments.calibration.calibration import Calibration
from operators.experiments.executor import RunRequest
from operators.experiments.runner import __main__ as program
from operators.experiments.runner import report as report_module
from operators.experiments.runner import status_writer
from operators.experiments.runner.inputs import Settings
from operators.experiments.runner.runner import Runner, RunnerDependencies
from operators.experiments.runner.status_writer import StatusWriter
from operators.experiments.saved import unpacked
from operators.kube.api import (
    CONFIG_MAP,
    EXPERIMENT,
    NAMESPACE,
    NODE,
    POOL,
    ApiAwayError,
    ForbiddenError,
    NotThereError,
)
from operators.objects.experiment import Experiment, ExperimentStatus
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import JobRecord, RunRecord
from tests.support.fake_api import FakeApi

SETTINGS = Settings(namespace="lab", name="e", uid="u-1", id="1f")
WORKLOAD = "job_id,user,gpu_duration_s\na,u,300\nb,u,200\n"
COSTS = {"startSeconds": "2", "finishSeconds": "0.5"}
SPEC: dict[str, Any] = {"workload": {"inline": WORKLOAD}, "policies": ["fifo", "sjf"], "costs": COSTS}


def put_experiment(api: FakeApi, **spec: Any) -> None:
    metadata = {"name": "e", "namespace": "lab", "uid": "u-1"}
    kept = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
    api.put(EXPERIMENT, {"metadata": metadata, "spec": kept})


@pytest.fixture
def cluster(world: Any) -> Any:
    """One node with a V100, and the experiment."""
    spec = {"gpus": [{"type": "V100", "count": 1}], "emulated": {"cpu": 8, "memory": "64Gi"}}
    world.put(POOL, {"metadata": {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "2", "memory": "8Gi"}}
    world.put(NODE, {"metadata": {"name": "w1", "uid": "w1"}, "status": status})
    put_experiment(world)
    return world


class Observed:
    """Takes the place of what runs jobs; fails where it should."""

    def __init__(self) -> None:
        self.settings: list[RunRequest] = []
        self.numbers: list[int] = []
        self.fails: dict[str, EmuGpuError] = {}

    def __call__(self, lab: Any, setting: RunRequest, _cluster: ClusterSpec, progress: Any) -> RunRecord:
        self.numbers.append(next(lab._numbers))
        if setting.title in self.fails:
            raise self.fails[setting.title]
        self.settings.append(setting)
        progress(len(setting.jobs), 1.0)
        ends = {"a": 310.0, "b": 520.0}
        jobs = tuple(JobRecord(j.job_id, j.user, j.row, 0.0, 1.0, ends[j.job_id], 0, ("w1/0",)) for j in setting.jobs)
        return RunRecord(setting.title, "kubernetes", setting.repeat, 1, ("w1",), jobs, ())


def status_in(api: FakeApi) -> ExperimentStatus:
    return Experiment.read(api.stored(EXPERIMENT, "lab/e")).status


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Observed:
    made = Observed()
    monkeypatch.setattr(executor.Executor, "observe", lambda *arguments: made(*arguments))
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def attempt(cluster: Any, tmp_path: Path) -> Callable[..., ExperimentStatus]:
    """One attempt; the status that it wrote last."""

    def attempt(python: list[str] | None = None) -> ExperimentStatus:
        heard = FakeApi()
        heard.put(EXPERIMENT, {"metadata": {"name": "e", "namespace": "lab", "uid": "u-1"}})
        means = RunnerDependencies(cluster.api, wall_ns, lambda _text: None, tmp_path, tuple(python or ()))
        with StatusWriter(SETTINGS, lambda: heard, wall_ns) as writer:
            Runner(SETTINGS, means, writer).run()
        return status_in(heard)

    return attempt


def report(cluster: Any) -> Any:
    return cluster.stored(CONFIG_MAP, "lab/e-report")


def kept(cluster: Any) -> Any:
    return unpacked(base64.b64decode(report(cluster)["binaryData"]["runs.json.gz"]), "here")


def test_all_is_reported_and_kept(cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]) -> None:
    experiment = attempt()
    assert experiment.progress.stage == "Done" and (experiment.attempts, experiment.done, experiment.gpus) == (1, 2, 1)
    fifo, sjf = experiment.results
    assert (fifo.name, fifo.kind, fifo.repeats) == ("fifo", "Policy", 1)
    assert fifo.observed is not None and fifo.observed.mean_jct == "415.000"
    assert fifo.predicted is not None and sjf.predicted is not None
    assert fifo.predicted.ratio == "1.0000" and sjf.predicted.ratio < "1"
    assert float(fifo.predicted.mean_jct) == (302 + 302.5 + 202) / 2
    assert experiment.best == "fifo" and experiment.error.endswith("%")
    assert (experiment.report.config_map, experiment.report.keys) == (
        "e-report",
        ("summary.json", "jobs.csv.gz", "runs.json.gz"),
    )
    (owner,) = report(cluster)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("SchedulingExperiment", "e", "u-1")
    assert list(json.loads(report(cluster)["data"]["summary.json"])["policies"]) == ["fifo", "sjf"]
    lines = gzip.decompress(base64.b64decode(report(cluster)["binaryData"]["jobs.csv.gz"])).decode().splitlines()
    assert len(lines) == 1 + 2 * 2 * 2
    assert [(run.policy, run.repeat) for run in kept(cluster).runs] == [
        ("fifo", 0),
        ("fifo", 1),
        ("sjf", 0),
        ("sjf", 1),
    ]
    assert kept(cluster).meta["costs"] == {"start_s": "2 s", "finish_s": "0.5 s"}


def test_an_attempt_goes_on_where_the_one_before_died(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    observed.fails["sjf"] = ClusterError("the scheduler ended with status 1: it said nothing")
    with pytest.raises(ClusterError, match="the scheduler ended"):
        attempt()
    assert [setting.title for setting in observed.settings] == ["fifo"]
    left = {"metadata": {"name": "emugpu-exp-1f-2", "labels": {"emugpu.dev/scheduling-experiment-uid": "u-1"}}}
    cluster.put(NAMESPACE, left)
    observed.fails.clear()
    experiment = attempt()
    assert [setting.title for setting in observed.settings] == ["fifo", "sjf"]
    assert observed.numbers == [1, 2, 1001]  # names of an earlier attempt don't come again
    assert cluster.objects["namespaces"] == {}
    assert experiment.progress.stage == "Done" and (experiment.attempts, experiment.done) == (2, 2)
    again = attempt()
    assert len(observed.settings) == 2 and again.progress.stage == "Done" and again.attempts == 3


def test_what_was_measured_is_not_measured_again(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus], monkeypatch: pytest.MonkeyPatch
) -> None:

    seconds = {
        "arrive_s": 0.05,
        "submit_s": 0.2,
        "serial_submit_s": 0.1,
        "start_s": 2.0,
        "serial_start_s": 0.5,
        "host_slots": 0.0,
    }
    seconds |= {"finish_s": 1.0, "stop_s": 3.0, "serial_stop_s": 0.0, "shared_stop_s": 0.0, "restart_s": 0.5}
    measured = Calibration(seconds, 0.3, {"alone": 3, "burst": 1})
    calls: list[float] = []
    monkeypatch.setattr(
        executor.Executor, "calibrate", lambda _lab, _c, gather_s, _t: calls.append(gather_s) or measured
    )
    put_experiment(cluster, costs=None)
    observed.fails["fifo"] = ApiAwayError("gone")
    with pytest.raises(ApiAwayError):
        attempt()
    observed.fails.clear()
    experiment = attempt()
    assert calls == [0.3]
    assert experiment.calibration["startSeconds"] == "2.000" and experiment.calibration["handOverSeconds"] == "3.300"
    assert experiment.calibration["hostSlots"] == "0.000"
    assert kept(cluster).calibration == measured


def test_another_workload_is_another_experiment(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    cluster.put(CONFIG_MAP, {"metadata": {"name": "w", "namespace": "lab"}, "data": {"w.csv": WORKLOAD}})
    put_experiment(cluster, workload={"configMapKeyRef": {"name": "w", "key": "w.csv"}})
    assert attempt().progress.stage == "Done"
    cluster.put(CONFIG_MAP, {"metadata": {"name": "w", "namespace": "lab"}, "data": {"w.csv": WORKLOAD + "c,u,9\n"}})
    with pytest.raises(InputError, match=r"differ from those of the previous attempt; delete it and create a new one"):
        attempt()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"workload": {"inline": "job_id\na\n"}}, r"^workload.csv"),
        (
            {"workload": {"configMapKeyRef": {"name": "w", "key": "k"}}},
            "spec.workload: there is no ConfigMap w in namespace lab",
        ),
        (
            {"cluster": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            "spec.cluster: ConfigMap c has no 'k', but other",
        ),
        ({"cluster": {"inline": "nodes: 4"}}, r"^cluster.yaml: nodes: must be a list"),
        ({"cluster": {"inline": "nodes: [{name: n, cpus: 4}]"}}, "workload.csv:2: job 'a' is larger than the cluster"),
        (
            {"cluster": {"inline": "nodes: [{name: n, gpus: 2, gpu_type: V100, cpus: 4}]"}},
            "spec.cluster: describes 1 nodes with 2 Tesla",
        ),
        ({"policies": ["fofi"]}, "unknown policy 'fofi'; did you mean"),
        ({"policies": ["sjf"], "estimates": "none"}, "needs estimates"),
        ({"policies": ["mine.py:Mine"]}, "runs with `emugpu compare --on kubernetes`"),
        ({"stretch": "0"}, "spec.stretch: must be a number from 0.0001"),
        ({"costs": {"startSeconds": "x"}}, "spec.costs.startSeconds: must be a number"),
    ],
)
def test_what_can_not_be_run_is_reported(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus], spec: dict[str, Any], message: str
) -> None:
    cluster.put(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "lab"}, "data": {"other": ""}})
    put_experiment(cluster, **spec)
    with pytest.raises((InputError, PolicyError), match=message):
        attempt()
    assert observed.settings == []


def test_a_cluster_without_pools_is_reported(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    cluster.remove(POOL, "p")
    with pytest.raises(InputError, match=r"spec.cluster: the cluster's pools have no node"):
        attempt()


def test_somebody_else_s_config_map_is_left_alone(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    cluster.put(CONFIG_MAP, {"metadata": {"name": "e-report", "namespace": "lab"}, "data": {"mine": "1"}})
    with pytest.raises(InputError, match=r"ConfigMap lab/e-report: exists and does not belong to this experiment"):
        attempt()
    assert report(cluster)["data"] == {"mine": "1"}


def test_an_experiment_that_was_made_anew_is_not_meant(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    cluster.put(EXPERIMENT, {"metadata": {"name": "e", "namespace": "lab", "uid": "u-2"}, "spec": SPEC})
    with pytest.raises(NotThereError, match="is another experiment now"):
        attempt()


@pytest.mark.parametrize(("most", "keys"), [(1500, ["runs.json.gz"]), (300, ["runs.json.gz"])])
def test_what_there_is_no_room_for_is_left_out(
    cluster: Any,
    observed: Observed,
    attempt: Callable[..., ExperimentStatus],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    keys: list[str],
) -> None:
    monkeypatch.setattr(report_module, "MAX_BYTES", most)
    experiment = attempt()
    assert experiment.progress.stage == "Done" and experiment.report.keys == tuple(keys)
    assert ("all runs" in experiment.report.left_out) == (most == 300)
    assert kept(cluster).attempts == 1 and (kept(cluster).runs == ()) == (most == 300)
    assert "summary.json" not in report(cluster)["data"]


def test_a_whole_run_with_a_scheduler_program(
    cluster: Any,
    attempt: Callable[..., ExperimentStatus],
    scheduler: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(executor, "LEAD_S", 0.2)
    monkeypatch.setattr("operators.experiments.run_namespace._POLL_S", 0.01)
    monkeypatch.chdir(tmp_path)
    put_experiment(cluster, policies=["fifo"], podSchedulers=["volcano"], actuator="gated", seed=7)
    experiment = attempt(scheduler())
    assert experiment.progress.stage == "Done" and [(each.name, each.kind) for each in experiment.results] == [
        ("fifo", "Policy"),
        ("volcano", "PodScheduler"),
    ]
    assert experiment.results[1].predicted is None
    assert experiment.results[1].observed is not None and experiment.results[1].observed.ratio
    assert cluster.objects["namespaces"] == {} and cluster.objects["emujobs"] == {}
    said = (tmp_path / "exp-1f-1.log").read_text()
    assert "scheduler --policy fifo --name exp-1f-1" in said and "--estimates oracle --seed 7" in said


# -- the status writer and the program ----------------------------------------------------------------------------------------


def test_what_could_not_be_told_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_writer, "EVERY_S", 0.01)
    api = FakeApi()
    api.put(EXPERIMENT, {"metadata": {"name": "e", "namespace": "lab", "uid": "u-1"}})
    api.failures["apply"] = [ApiAwayError("apply: the API server can't be reached")] * 3
    with StatusWriter(SETTINGS, lambda: api, wall_ns) as writer:
        writer.update(stage="Observing", column="fifo", ended=3, jobs=4)
        writer.flush()
        writer.update(problem="the end")
    found = status_in(api).progress
    assert (found.policy, found.jobs_ended, found.problem) == ("fifo", 3, "the end") and found.at_ns
    assert capsys.readouterr().err.count("experiment: apply: the API server can't be reached") == 3


def test_an_experiment_that_hears_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "EVERY_S", 0.01)
    monkeypatch.setattr(status_writer, "_FLUSH_S", 0.1)
    api = FakeApi()  # the experiment is gone
    with StatusWriter(SETTINGS, lambda: api, wall_ns) as writer:
        writer.update(stage="Done")
        with pytest.raises(ClusterError, match="could not be written"):
            writer.flush()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("spec.stretch", "must be above 0"), 64),
        (ForbiddenError("create namespaces: no"), 64),
        (ClusterError("too few probe jobs came through"), 1),
        (ApiAwayError("gone"), 1),
        (KeyboardInterrupt(), 143),
        (None, 0),
    ],
)
def test_how_a_runner_ends_says_whether_another_attempt_helps(
    error: BaseException | None, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = FakeApi()
    api.put(EXPERIMENT, {"metadata": {"name": "e", "namespace": "lab", "uid": "u-1"}})

    def run(_runner: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(program, "connection", lambda: None)
    monkeypatch.setattr(program, "KubeApi", lambda _config: api)
    monkeypatch.setattr(program.Runner, "run", run)
    monkeypatch.setattr(program.signal, "signal", lambda _number, _handler: None)
    monkeypatch.setattr(program.os, "chdir", lambda _path: None)
    for name in ("NAMESPACE", "NAME", "UID", "ID"):
        monkeypatch.setenv(f"EMUGPU_EXPERIMENT_{name}", getattr(SETTINGS, name.lower()))
    assert program.main([]) == status
    said = capsys.readouterr().err
    if isinstance(error, EmuGpuError):
        found = status_in(api).progress
        assert found.problem == str(error) and said == f"experiment: {error}\n"


def test_usage_and_mistakes_of_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--help"]) == 0
    assert "EMUGPU_EXPERIMENT_UID" in capsys.readouterr().out
    assert program.main(["x"]) == 64
    monkeypatch.setattr(program.signal, "signal", lambda _number, _handler: None)
    assert program.main([]) == 64
    assert "EMUGPU_EXPERIMENT_NAMESPACE: is missing" in capsys.readouterr().err


# --- profiles and programs ----------------------------------------------------------------------------------------------

MINE = {
    "sample_bytes": 0,
    "memory": {"knots": [{"batch": 16, "peak_bytes": 10**9, "persistent_bytes": 10**8}]},
    "gpus": {"V100": {"knots": [{"batch": 16, "forward_s": 1, "backward_s": 2}]}},
}
TRAINED = "job_id,user,model,batch_size,steps{}\na,u,mine,16,100{}\nb,u,mine,16,60{}\n"


def test_an_experiment_has_profiles_of_its_own(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    profiles = json.dumps({"models": {"mine": MINE}})
    cluster.put(CONFIG_MAP, {"metadata": {"name": "c", "namespace": "lab"}, "data": {"mine.json": profiles}})
    source = {"configMapKeyRef": {"name": "c", "key": "mine.json"}}
    put_experiment(cluster, workload={"inline": TRAINED.format("", "", "")}, profiles=source)
    attempt()
    assert observed.settings[0].predicted["a"] == pytest.approx(302.35, abs=1)


def test_an_experiment_runs_no_programs(
    cluster: Any, observed: Observed, attempt: Callable[..., ExperimentStatus]
) -> None:
    profiles = {"inline": json.dumps({"models": {"mine": MINE}})}
    workload = TRAINED.format(",program,image", ",true,torch:1", ",,")
    put_experiment(cluster, workload={"inline": workload}, profiles=profiles)
    with pytest.raises(InputError, match=r"spec.workload: job 'a' runs a program; programs run with `emugpu compare"):
        attempt()
    assert not observed.settings
