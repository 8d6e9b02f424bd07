"""What `emugpu compare --on kubernetes` refuses, and what it leaves behind; the cluster is in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emugpu.__main__ import main
from emugpu.comparison.on_kubernetes import read_program_files
from emulator_runtime.domain.errors import ClusterError, InputError
from operators.experiments import executor
from operators.experiments.calibration.calibration import Calibration
from operators.experiments.executor import RunRequest
from operators.kube.api import NODE, POD, POOL
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import JobRecord, RunRecord
from tests.support.fake_api import FakeApi

WORKLOAD = "job_id,user,gpu_duration_s,cpu_duration_s,cpu_cpus\na,u,300,,\nb,u,200,900,2\n"
CLUSTER = "nodes: [{name: n, gpus: 1, gpu_type: V100, cpus: 8}]"
MEASURED = Calibration(
    {
        "arrive_s": 0.05,
        "submit_s": 0.25,
        "serial_submit_s": 0.1,
        "start_s": 2.0,
        "serial_start_s": 0.5,
        "host_slots": 0.0,
        "finish_s": 1.0,
        "stop_s": 3.0,
        "serial_stop_s": 0.2,
        "shared_stop_s": 0.0,
        "restart_s": 0.5,
    },
    coalesce_s=0.3,
    usable={"alone": 3, "burst": 12, "wide": 0, "together": 0, "chain": 10, "stops": 3},
)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A cluster with one node, as the file describes it."""
    fake = FakeApi()
    spec = {"gpus": [{"type": "V100", "count": 1}], "emulated": {"cpu": 8, "memory": "64Gi"}}
    fake.put(POOL, {"metadata": {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "2", "memory": "8Gi"}}
    fake.put(NODE, {"metadata": {"name": "w1", "uid": "w1"}, "status": status})
    monkeypatch.setattr("operators.kube.kubeconfig.connection", lambda _file, _context: None)
    monkeypatch.setattr("operators.kube.client.KubeApi", lambda _config: fake)
    return fake


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., int]:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    (tmp_path / "c.yaml").write_text(CLUSTER)

    def compare(*arguments: str, on: str = "kubernetes") -> int:
        files = (str(tmp_path / "w.csv"), "--cluster", str(tmp_path / "c.yaml"))
        return main(["compare", *files, "--on", on, *arguments])

    return compare


class Runs:
    """Takes the place of what runs jobs: notes what it is asked for, and answers with times of its own."""

    def __init__(self) -> None:
        self.settings: list[RunRequest] = []

    def observe(self, _lab: Any, setting: RunRequest, cluster: ClusterSpec, progress: Any) -> RunRecord:
        self.settings.append(setting)
        progress(len(setting.jobs), 1.0)
        ends = {"a": 305.5, "b": 205.5}
        jobs = tuple(JobRecord(j.job_id, j.user, j.row, 0.0, 1.0, ends[j.job_id], 0, ("w1/0",)) for j in setting.jobs)
        return RunRecord(setting.title, "kubernetes", setting.repeat, 1, ("w1",), jobs, ())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs()
    monkeypatch.setattr(executor.Executor, "observe", lambda *arguments: made.observe(*arguments))
    monkeypatch.setattr(executor.Executor, "calibrate", lambda _executor, _probes, _gather_s, _reporter: MEASURED)
    return made


def test_predicted_and_observed_side_by_side_with_what_was_measured(
    api: FakeApi, runs: Runs, compare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ("--policy", "fifo", "--policy", "sjf")
    assert compare(*policies, "--repeat", "2", "--default-scheduler", "--out", str(tmp_path / "out")) == 0
    fifo, again, sjf, _, default, _ = runs.settings
    assert [(s.title, s.policy, s.repeat) for s in (fifo, again, sjf)] == [
        ("fifo", "fifo", 1),
        ("fifo", "fifo", 2),
        ("sjf", "sjf", 1),
    ]
    assert (default.title, default.policy, default.pod_scheduler) == ("default-scheduler", "", "default-scheduler")
    assert fifo.gather_s == 0.3
    assert fifo.limit_s == pytest.approx(3 * (0.35 + 0.3 + 2 + 300 + 1 + 0.3 + 2 + 200) + 600)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["meta"]["calibration"]["start_s"] == 2.0
    assert summary["meta"]["nodes by name"] == {"n": "w1"}
    assert summary["meta"]["costs"]["serial_start_s"] == "0.5 s"
    assert summary["policies"]["default-scheduler"]["predicted"] is None
    assert summary["policies"]["fifo"]["error"]["mean_jct"] is not None
    assert len(summary["ranking"]) == 3
    assert "start_s 2.0" in (tmp_path / "out" / "report.html").read_text()
    assert "predicted" in capsys.readouterr().out


def test_an_experiment_that_breaks_off_leaves_what_it_has(
    api: FakeApi, runs: Runs, compare: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def observe(_lab: Any, setting: RunRequest, *arguments: Any) -> RunRecord:
        if setting.title == "sjf":
            raise ClusterError("the cluster is gone")
        return runs.observe(_lab, setting, *arguments)

    monkeypatch.setattr(executor.Executor, "observe", observe)
    assert compare("--policy", "fifo", "--policy", "sjf", "--out", str(tmp_path / "out")) == 2
    assert list(json.loads((tmp_path / "out" / "summary.json").read_text())["policies"]) == ["fifo"]
    assert (tmp_path / "out" / "report.html").exists()


def test_costs_that_are_a_large_part_are_a_warning(
    api: FakeApi, runs: Runs, compare: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--policy", "sjf", "--stretch", "0.1") == 0
    assert "takes 3.30 s on this cluster" in " ".join(capsys.readouterr().out.split())


def test_what_was_measured_badly_is_a_warning(
    api: FakeApi,
    runs: Runs,
    compare: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = replace(MEASURED, notes=("calibration: only 1 of 12 probe jobs stopped at once can be used",))
    monkeypatch.setattr(executor.Executor, "calibrate", lambda *_: measured)
    assert compare("--policy", "sjf") == 0
    assert "sjf: calibration: only 1 of 12 probe jobs" in " ".join(capsys.readouterr().out.split())


def test_without_calibration_the_file_s_costs_count(
    api: FakeApi, runs: Runs, compare: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(*_: object) -> Calibration:
        raise ClusterError("nobody asked for that")

    monkeypatch.setattr(executor.Executor, "calibrate", calibrate)
    assert compare("--policy", "sjf", "--no-calibration", "--json") == 0
    assert runs.settings[0].gather_s == 0.0


def test_schedulers_are_told_what_policies_know(
    api: FakeApi, compare: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    class Noted:
        def __init__(self, _name: str, tools: Any) -> None:
            found.append(tools)
            raise ClusterError("far enough")

    monkeypatch.setattr(executor, "Executor", Noted)
    options = ("--estimates", "error:0.2", "--seed", "7", "--context", "lab", "--kubeconfig", "/k", "--keep")
    assert compare("--policy", "sjf", *options) == 2
    assert list(found[0].scheduler_options) == [
        *("--kubeconfig", "/k", "--context", "lab", "--estimates", "error:0.2", "--seed", "7")
    ]
    assert found[0].keep


@pytest.mark.parametrize("flag", [["--speed", "1"], ["--warp"], ["--realtime"]])
def test_this_machine_s_clocks_are_refused(
    compare: Callable[..., int], flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--policy", "sjf", *flag) == 2
    error = capsys.readouterr().err
    assert f"{flag[0]}: is for this machine" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "flag",
    [
        ["--kubeconfig", "f"],
        ["--context", "c"],
        ["--default-scheduler"],
        ["--scheduler-name", "v"],
        ["--keep"],
        ["--no-calibration"],
    ],
)
def test_options_of_a_cluster_are_refused_on_this_machine(
    compare: Callable[..., int], flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--policy", "sjf", *flag, on="local") == 2
    assert f"{flag[0]}: belongs to --on kubernetes" in capsys.readouterr().err


def test_another_cluster_is_refused_before_anything_runs(
    api: FakeApi, compare: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    api.put(NODE, {**api.stored(NODE, "w1"), "metadata": {"name": "w2", "uid": "w2"}})
    assert compare("--policy", "sjf") == 2
    error = capsys.readouterr().err
    assert "describes 1 nodes with 1 Tesla_V100-PCIE-32GB, 8 CPUs; the cluster's pools have 2 nodes" in error
    assert "`emugpu cluster up --node-gpus 1x1xV100 --emulated-cpus 8` makes such a cluster" in error
    assert api.log == []


def test_a_cluster_in_use_is_refused(
    api: FakeApi, compare: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "c", "resources": {"limits": {"emugpu.dev/emuGPU": "1"}}}
    api.put(POD, {"metadata": {"name": "p", "namespace": "lab"}, "spec": {"containers": [container]}, "status": {}})
    assert compare("--policy", "sjf") == 2
    assert "lab/p use emulated devices" in capsys.readouterr().err


def test_a_job_that_kubernetes_can_not_run_is_reported(
    api: FakeApi, compare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.csv").write_text("job_id,cpu_duration_s\nc,10\n")
    assert compare("--policy", "sjf", "--scheduler-name", "volcano") == 2
    assert "job 'c': runs on CPUs only" in capsys.readouterr().err


def test_where_no_cluster_is_configured_one_line_says_so(
    compare: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert compare("--policy", "sjf", "--kubeconfig", str(tmp_path / "nothing")) == 2
    error = capsys.readouterr().err
    assert "--kubeconfig" in error and error.count("\n") == 1


def test_without_a_cluster_file_the_pools_nodes_are_simulated(
    api: FakeApi, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    out = tmp_path / "out"
    assert main(["compare", str(tmp_path / "w.csv"), "--on", "kubernetes", "--policy", "fifo", "--out", str(out)]) == 0
    meta = json.loads((out / "summary.json").read_text())["meta"]
    assert (meta["cluster"], meta["gpus"], meta["nodes by name"]) == ("as its pools are", 1, {"w1": "w1"})
    assert runs.settings[0].policy == "fifo"


def test_only_a_cluster_can_do_without_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    assert main(["compare", str(tmp_path / "w.csv"), "--policy", "fifo"]) == 2
    assert "--cluster: is missing; only --on kubernetes works without it" in capsys.readouterr().err


def test_an_actuator_that_can_not_change_gpus_takes_no_such_workload(
    api: FakeApi, runs: Runs, compare: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--policy", "sjf", "--actuator", "gated") == 2
    assert "job 'b': has configurations with different numbers of GPUs" in capsys.readouterr().err
    assert api.log == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "big,u,300,16",
            "job 'big' is larger than the cluster: needs 16 CPUs on one node; the largest node with 1 GPU has 8; the "
            "most suitable node, w1, has 1 "
            "Tesla_V100-PCIE-32GB, 8 CPUs, 64 GiB; let the job ask for less, or emulate more: "
            "`emugpu cluster up --emulated-cpus 16` or spec.emulated of its EmuGPUPool",
        ),
    ],
)
def test_a_job_that_fits_no_node_is_refused_with_what_to_change(
    api: FakeApi, tmp_path: Path, row: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.csv").write_text(f"job_id,user,gpu_duration_s,cpus\n{row}\n")
    assert main(["compare", str(tmp_path / "w.csv"), "--on", "kubernetes", "--policy", "fifo"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert api.log == []


def test_messages_are_in_the_log_of_the_output_folder(
    api: FakeApi,
    runs: Runs,
    compare: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def calibrate(made: executor.Executor, probes: Any, _gather_s: float, reporter: Any) -> Calibration:
        reporter.describe("probe 1 of 1: 1 probe jobs submitted alone")
        made._settings.say("the scheduler: the plan places job 'b' on n1, where it does not fit beside the rest")
        return MEASURED

    monkeypatch.setattr(executor.Executor, "calibrate", calibrate)
    assert compare("--policy", "fifo", "--out", str(tmp_path / "out")) == 0
    log, shown = (tmp_path / "out" / "experiment.log").read_text(), capsys.readouterr().err
    complaint = "the scheduler: the plan places job 'b' on n1, where it does not fit beside the rest"
    for line in (complaint, "calibration: probe 1 of 1: 1 probe jobs submitted alone", "fifo: observed ..."):
        assert line in shown and line in log
    assert f"messages are written to {tmp_path}/out/experiment.log too" in shown
    assert runs.settings[0].predicted == pytest.approx({"a": 302.65, "b": 505.9})


# --- files of programs --------------------------------------------------------------------------------------------------


def test_files_of_programs_are_those_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "data").mkdir()
    assert read_program_files(tmp_path) == {"train.py": "print(1)"}


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("", b"", r"--program-files: .* has no files"),
        ("a b.py", b"1", r"a b.py: a ConfigMap's keys are letters"),
        ("a.bin", b"\xff\xfe", r"a.bin is no text that can be read"),
        ("a.py", b"1" * 1_000_000, r"has 1000004 bytes, a ConfigMap at most 921600"),
    ],
)
def test_what_no_config_map_can_have(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=error):
        read_program_files(tmp_path)
    with pytest.raises(InputError, match=r"--program-files: there is no folder"):
        read_program_files(tmp_path / "nowhere")


def test_the_executor_gets_profiles_and_files(
    api: FakeApi, runs: Runs, compare: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "train.py").write_text("print(1)")
    (tmp_path / "mine.json").write_text(json.dumps({"models": {}}))
    made: list[executor.ExecutorSettings] = []
    original = executor.Executor.__init__

    def init(self: Any, name: str, settings: executor.ExecutorSettings, first: int = 1) -> None:
        made.append(settings)
        original(self, name, settings, first)

    monkeypatch.setattr(executor.Executor, "__init__", init)
    options = ("--program-files", str(tmp_path / "programs"), "--profiles", str(tmp_path / "mine.json"))
    assert compare("--policy", "fifo", *options) == 0
    assert made[0].program_files == {"train.py": "print(1)"} and made[0].profiles is not None


def test_files_of_programs_are_for_pods(compare: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--policy", "fifo", "--program-files", ".", on="local") == 2
    assert "--program-files: belongs to --on kubernetes" in capsys.readouterr().err
