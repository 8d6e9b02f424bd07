"""The small parts of a run in a pod: the environment, amounts of memory, the log of steps, what is printed."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads import stopping
from emulator_runtime.workloads.command.report import TrainReport, TrainSummary
from emulator_runtime.workloads.command.sizes import parse_bytes
from emulator_runtime.workloads.pod import all_linked, pod_access, whole_variable
from emulator_runtime.workloads.ranks.group import Start
from emulator_runtime.workloads.records import ObservedStepTimes, StepLog, StepRecord
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("10GiB", 10 * 2**30), ("10Gi", 10 * 2**30), ("512MiB", 2**29), ("1.5GB", 1_500_000_000), ("80G", 80 * 10**9),
        ("1024", 1024), ("2 kib", 2048), ("3B", 3), ("1TiB", 2**40), ("0", 0),
    ],
)  # fmt: skip
def test_amounts_of_memory(text, amount):
    assert parse_bytes(text, "--memory") == amount


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1.GiB", "ten", "1IB", "1PiB", "١"])
def test_what_is_no_amount(text):
    with pytest.raises(InputError, match="--memory: must be an amount of memory such as 10GiB"):
        parse_bytes(text, "--memory")


def test_access_comes_from_the_environment():
    access = pod_access({"EMUGPU_TOKEN": "t", "EMUGPU_MANAGER_SOCKET": "/run/emugpu/manager.sock"})
    assert (access.token, str(access.manager)) == ("t", "/run/emugpu/manager.sock")


@pytest.mark.parametrize(("gpu", "token"), [(None, "h"), ("", "h"), ("g", "g")])
def test_a_container_with_a_place_on_its_node_uses_it_where_it_has_no_gpu(gpu, token):
    environ = {"EMUGPU_HOST_TOKEN": "h", "EMUGPU_MANAGER_SOCKET": "/s"}
    assert pod_access(environ if gpu is None else environ | {"EMUGPU_TOKEN": gpu}).token == token


@pytest.mark.parametrize("missing", ["EMUGPU_TOKEN", "EMUGPU_MANAGER_SOCKET"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_container_without_gpu(missing, empty):
    environ = {"EMUGPU_TOKEN": "t", "EMUGPU_MANAGER_SOCKET": "/s"} | {missing: ""}
    if not empty:
        del environ[missing]
    with pytest.raises(
        InputError, match=f"{missing}: is missing: this container has no emulated GPU; ask for emuGPU in"
    ):
        pod_access(environ)


def test_numbers_from_the_environment():
    names = ("EMUGPU_RANK", "JOB_COMPLETION_INDEX")
    assert whole_variable({}, names, 7) == 7
    assert whole_variable({"JOB_COMPLETION_INDEX": "3"}, names, 0) == 3
    assert whole_variable({"JOB_COMPLETION_INDEX": "3", "EMUGPU_RANK": "1"}, names, 0) == 1
    with pytest.raises(InputError, match="JOB_COMPLETION_INDEX: must be a whole number, not '-1'"):
        whole_variable({"JOB_COMPLETION_INDEX": "-1"}, names, 0)


def test_links_come_from_the_device_files(tmp_path):
    def write(name, uuid, links):
        (tmp_path / name).write_text(json.dumps({"uuid": uuid, "links": links}))

    assert all_linked(["a", "b", "c"], tmp_path)
    write("0", "a", {"b": "NVLink", "c": "PCIe"})
    write("1", "b", {"a": "NVLink"})
    (tmp_path / "2").write_text("no json")
    (tmp_path / "3").mkdir()
    (tmp_path / "4").write_text("[]")
    assert all_linked(["a", "b"], tmp_path)
    assert not all_linked(["a", "b", "c"], tmp_path)


def test_a_step_log_goes_on_where_it_was(tmp_path):
    path = tmp_path / "steps.csv"
    for step in range(2):
        log = StepLog(str(path))
        log.add(StepRecord(step, 10, 20, 21))
        assert path.read_text().endswith("\n")
        log.close()
    assert path.read_text() == "step,start_ns,end_ns,seen_ns\n0,10,20,21\n1,10,20,21\n"


def test_a_step_log_that_can_not_be_written(tmp_path):
    with pytest.raises(InputError, match=f"--log-steps: can't write {tmp_path}: Is a directory"):
        StepLog(str(tmp_path))
    with pytest.raises(
        InputError, match="can't write /dev/full: No space left on device; give a file that this container may write"
    ):
        StepLog("/dev/full")


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=50))
def test_times_seen(durations):
    seen, now = ObservedStepTimes(), 5
    seen.begin(now)
    for duration in durations:
        now += duration
        seen.add(now)
    ordered = sorted(durations)
    assert len(seen) == len(durations)
    assert seen.mean_s == pytest.approx(sum(durations) / len(durations) / S)
    low, median, high = (value * S for value in seen.quantiles_s(0.0, 0.5, 1.0))
    assert (low, high) == (pytest.approx(ordered[0]), pytest.approx(ordered[-1]))
    assert sum(value <= median * 1.0001 for value in ordered) * 2 >= len(ordered)


def test_times_of_no_step():
    assert (ObservedStepTimes().mean_s, ObservedStepTimes().quantiles_s(0.5)) == (0.0, [0.0])


REQUEST = TrainRequest(steps=20, model="resnet50", batch_size=64)
DEVICES = (AttachedDevice("u", 0, "Tesla_V100-PCIE-32GB", 1), AttachedDevice("v", 1, "Tesla_K80", 1))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(out, steps=20):
    plan = plan_step(REQUEST, Layout(("Tesla_V100-PCIE-32GB", "Tesla_K80"), 2), ProfileTable.bundled())
    report = TrainReport(REQUEST, out)
    report.planned(Start(4, 2), DEVICES, plan)
    for step in range(4, steps):
        report.stepped(StepRecord(step, 0, 0, step * S))
    report.waiting(steps * S + 5 * S)
    report.end_line()
    return out.getvalue().removesuffix("\n").split("\n")


def test_a_log_has_a_line_each_five_seconds():
    lines = told(io.StringIO())
    assert lines[0].startswith("1 x Tesla_K80 + 1 x Tesla_V100-PCIE-32GB (emulated); resnet50, batch size 64; ")
    assert "paced by Tesla_K80" in lines[0]
    assert lines[0].endswith("goes on at step 4 of 20")
    assert lines[1] == "step 10/20 (50%), 1.20 steps/s, 76.8 samples/s, 8 s left"
    assert [line.split(" (")[0] for line in lines[1:]] == ["step 10/20", "step 15/20", "step 20/20", "step 20/20"]


def test_a_terminal_has_one_line_that_moves():
    first, *bars = told(Terminal(), steps=6)
    assert first.endswith("goes on at step 4 of 20")
    assert all(line.startswith("\r[") or line == "" for line in bars)
    assert "\r[#########.....................] step 6/20 (30%)" in bars[0]
    assert len(bars) == 1


def test_a_summary_before_the_first_step():
    summary = TrainSummary("failed", 0, 0, None, ObservedStepTimes(), LagHistogram(), reason="why")
    assert summary.lines() == ["failed: 0 steps done, 0 of them in this run (why)"]
    assert json.loads(json.dumps(summary.to_json()))["step_s"]["mean"] == 0


def test_a_stopping_process_ends_within_its_pods_grace_period() -> None:
    assert stopping.PATIENCE_S + stopping.RELEASE_TIMEOUT_S + 1 <= stopping.GRACE_S
