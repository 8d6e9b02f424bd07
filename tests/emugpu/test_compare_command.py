"""The command as a user runs it: files, exit codes, one clear line for each mistake, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emugpu.__main__ import main

ROOT = Path(__file__).parents[2]
WORKLOAD = "job_id,user,gpu_duration_s\na,u,30\nb,u,20\nc,v,10\n"
CLUSTER = "nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]"


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "w.csv").write_text(WORKLOAD)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    return tmp_path


def run(inputs: Path, command: str, *arguments: str) -> int:
    return main([command, str(inputs / "w.csv"), "--cluster", str(inputs / "c.yaml"), *arguments])


def test_simulate_prints_json_and_leaves_files(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(inputs, "simulate", "--policy", "sjf", "--policy", "fifo", "--json", "--out", str(inputs / "out")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["policies"]["sjf"]["predicted"]["mean_jct_s"] == pytest.approx(100 / 3)
    assert printed == json.loads((inputs / "out" / "summary.json").read_text())
    assert (inputs / "out" / "report.html").stat().st_size > 1_000_000
    assert len((inputs / "out" / "jobs.csv").read_text().splitlines()) == 7


def test_the_same_seed_gives_the_same_bytes(inputs: Path) -> None:
    for name in ("one", "two"):
        arguments = ("--policy", "srtf", "--estimates", "error:0.5", "--seed", "7", "--out", str(inputs / name))
        assert run(inputs, "simulate", *arguments) == 0
    assert (inputs / "one" / "jobs.csv").read_bytes() == (inputs / "two" / "jobs.csv").read_bytes()


@pytest.mark.processes
def test_compare_puts_both_side_by_side(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(inputs, "compare", "--policy", "sjf", "--warp", "--repeat", "2", "--out", str(inputs / "out")) == 0
    summary = json.loads((inputs / "out" / "summary.json").read_text())["policies"]["sjf"]
    assert abs(summary["error"]["mean_jct"]) < 0.01
    assert len(summary["observed"]["repeats"]) == 2
    table = capsys.readouterr().out
    assert "predicted" in table
    assert "observed" in table


@pytest.mark.processes
@pytest.mark.parametrize(
    ("options", "clock"),
    [(("--warp",), "warp"), (("--warp", "--speed", "0.1"), "warp, between jumps 0.1 emulated seconds per second")],
)
def test_a_report_says_which_clock_it_was(inputs: Path, options: tuple[str, ...], clock: str) -> None:
    assert run(inputs, "compare", "--policy", "sjf", *options, "--out", str(inputs / "out")) == 0
    assert json.loads((inputs / "out" / "summary.json").read_text())["meta"]["clock"] == clock


LATE = (
    "from scheduler_sims.policies.fifo import Fifo\n"
    "class Late(Fifo):\n    def plan(self, view):\n"
    "        if view.now_s > 3:\n            raise {error}\n        return super().plan(view)\n"
)


@pytest.mark.processes
@pytest.mark.parametrize(("error", "status"), [("ValueError('late')", 2), ("KeyboardInterrupt", 130)])
def test_a_policy_that_fails_or_is_interrupted_keeps_the_runs_before_it(inputs: Path, error: str, status: int) -> None:
    (inputs / "late.py").write_text(LATE.format(error=error))
    out = inputs / "out"
    policies = ("--policy", "sjf", "--policy", f"{inputs}/late.py:Late")
    assert run(inputs, "compare", *policies, "--warp", "--out", str(out)) == status
    policies_in_summary = json.loads((out / "summary.json").read_text())["policies"]
    assert list(policies_in_summary) == ["sjf"]
    assert policies_in_summary["sjf"]["error"]["mean_jct"] is not None
    assert len((out / "jobs.csv").read_text().splitlines()) == 1 + 2 * 3
    assert {path.name for path in out.iterdir()} == {"jobs.csv", "spans.csv", "summary.json", "report.html"}


def test_a_comparison_that_has_observed_nothing_replaces_no_earlier_one(inputs: Path) -> None:
    (inputs / "late.py").write_text(LATE.format(error="ValueError('late')"))
    assert run(inputs, "compare", "--policy", f"{inputs}/late.py:Late", "--warp", "--out", str(inputs / "out")) == 2
    assert not list((inputs / "out").iterdir())


def test_explain_says_why(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(inputs, "simulate", "--policy", "sjf", "--explain") == 0
    assert "c: " in capsys.readouterr().err


MISTAKES = [
    ("unknown policy", ["--policy", "sjff"], "did you mean sjf"),
    ("unknown option", ["--policy", "las:treshold_s=3"], "threshold_s"),
    ("policy twice", ["--policy", "sjf", "--policy", "sjf"], "twice"),
    ("missing policy file", ["--policy", "nothing.py:Mine"], "nothing.py"),
    ("estimates kind", ["--policy", "sjf", "--estimates", "oracles"], "--estimates"),
    ("estimates needed", ["--policy", "sjf", "--estimates", "none"], "needs estimates"),
    ("out is a file", ["--policy", "sjf", "--out", "/dev/null"], "--out: can't make the directory /dev/null"),
    ("out has a long name", ["--policy", "sjf", "--out", "x" * 300], "File name too long"),
    ("profiles missing", ["--policy", "sjf", "--profiles", "/nowhere.json"], "/nowhere.json"),
]


@pytest.mark.parametrize(("arguments", "says"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_in_a_flag_is_one_clear_line(
    inputs: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(inputs, "simulate", *arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


BAD_FILES = [
    ("negative duration", "job_id,gpu_duration_s\na,-3\n", CLUSTER, "w.csv:2: gpu_duration_s"),
    ("unknown column", "job_id,gpu_duration\na,3\n", CLUSTER, "did you mean gpu_duration_s"),
    ("unknown model", "job_id,model,batch_size,steps\na,resnet5,8,10\n", CLUSTER, "w.csv:2: model"),
    ("unknown GPU of a job", "job_id,gpu_duration_s,gpu_type\na,3,V1000\n", CLUSTER, "w.csv:2: gpu_type"),
    ("unknown GPU of a node", WORKLOAD, CLUSTER.replace("T4", "T5"), "nodes[0].gpu_type"),
    ("job too large", "job_id,gpu_duration_s,num_gpus\na,3,2\n", CLUSTER, "larger than the cluster"),
    ("no profile here", "job_id,model,batch_size,steps\na,resnet50,8,10\n", CLUSTER, "larger than the cluster"),
    ("not YAML", WORKLOAD, "nodes: [", "c.yaml"),
]


@pytest.mark.parametrize(("workload", "cluster", "says"), [b[1:] for b in BAD_FILES], ids=[b[0] for b in BAD_FILES])
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_mistake_in_a_file_is_one_clear_line(
    inputs: Path, command: str, workload: str, cluster: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "w.csv").write_text(workload)
    (inputs / "c.yaml").write_text(cluster)
    assert run(inputs, command, "--policy", "fifo") == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "flag", [["--speed", "0"], ["--speed", "nan"], ["--repeat", "0"], ["--repeat", "1001"], ["--standby", "0"]]
)
def test_numbers_out_of_range_are_refused(inputs: Path, flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(inputs, "compare", "--policy", "fifo", *flag) == 2
    assert flag[0] in capsys.readouterr().err


def test_a_policy_that_exits_or_prints_changes_nothing_else(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "exits.py").write_text("class Exits:\n    def plan(self, view):\n        raise SystemExit(0)\n")
    assert run(inputs, "simulate", "--policy", f"{inputs}/exits.py:Exits") == 2
    assert "SystemExit" in capsys.readouterr().err
    (inputs / "neighbour.py").write_text("WORD = 'hello'\n")
    (inputs / "prints.py").write_text(
        "from neighbour import WORD\nfrom scheduler_sims.policies.fifo import Fifo\n"
        "class Prints(Fifo):\n    def plan(self, view):\n        print(WORD)\n        return super().plan(view)\n"
    )
    assert run(inputs, "simulate", "--policy", f"{inputs}/prints.py:Prints", "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["policies"]["Prints"]["predicted"]["finished"] == 3
    assert "hello" in printed.err


def test_a_policy_that_stops_jobs_before_they_did_a_step_is_stopped(
    inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "c.yaml").write_text(CLUSTER + "\ncosts: {start_s: 2}")
    (inputs / "swings.py").write_text(
        "from scheduler_sims.policies.placing import FreeSpace\n"
        "class Swings:\n    def plan(self, view):\n"
        "        if view.holding():\n            return view.plan.evolve(stop=list(view.plan.allocations))\n"
        "        job = view.queued()[0]\n        start = {job.job_id: FreeSpace.now(view).place(job.configurations[0])}\n"
        "        return view.plan.evolve(start=start, wake_at_s=view.now_s + 1)\n"
    )
    assert run(inputs, "simulate", "--policy", f"{inputs}/swings.py:Swings") == 2
    assert "before they had done a step" in capsys.readouterr().err


def test_a_policy_that_fails_is_named(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "mine.py").write_text("class Mine:\n    def plan(self, view):\n        return 1 / 0\n")
    assert run(inputs, "simulate", "--policy", f"{inputs}/mine.py:Mine") == 2
    error = capsys.readouterr().err
    assert "policy Mine" in error
    assert "mine.py:3" in error
    assert error.count("emugpu:") == 1


MINE = "class Mine:\n    needs_estimates = False\n    def plan(self, view): ...\n"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("w.csv", "the workload"),
        ("c.yaml", "the cluster file"),
        ("p.json", "the profiles file"),
        ("m.py", "a policy file"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
@pytest.mark.parametrize("linked", [False, True])
def test_no_input_is_overwritten(
    inputs: Path, command: str, name: str, what: str, linked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (inputs / "p.json").write_text("{}")
    (inputs / "m.py").write_text(MINE)
    target = inputs / "jobs.csv"
    if linked:
        target.symlink_to(inputs / name)
    else:
        target = target.parent / "summary.json"
        target.hardlink_to(inputs / name)
    before = target.read_text()
    arguments = ("--policy", f"{inputs}/m.py:Mine:", "--profiles", str(inputs / "p.json"), "--out", f"{inputs}/x/..")
    assert run(inputs, command, *arguments) == 2
    error = capsys.readouterr().err
    assert error == f"emugpu: --out: {inputs}/x/../{target.name} is {what} of this run; choose another output folder\n"
    assert target.read_text() == before


def test_an_output_folder_has_a_name(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(inputs, "simulate", "--policy", "sjf", "--out", "")
    assert ended.value.code == 2
    assert "argument --out: is empty; name a folder" in capsys.readouterr().err


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found[1:]


def started_compare(inputs: Path) -> subprocess.Popen[bytes]:
    """A compare that would run for a minute; returns when its processes are there."""
    (inputs / "w.csv").write_text("job_id,gpu_duration_s\n" + "".join(f"j{n},60\n" for n in range(5)))
    command = [
        "compare",
        str(inputs / "w.csv"),
        "--cluster",
        str(inputs / "c.yaml"),
        "--policy",
        "fifo",
        "--speed",
        "1",
    ]
    process = subprocess.Popen([sys.executable, "-m", "emugpu", *command], stderr=subprocess.PIPE, cwd=ROOT)
    give_up = time.monotonic() + 30
    while len(descendants(process.pid)) < 7 and time.monotonic() < give_up:
        time.sleep(0.05)
    time.sleep(0.5)
    return process


def assert_interrupted_and_gone(process: subprocess.Popen[bytes], children: list[int]) -> None:
    assert process.returncode == 130
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    assert not list(Path("/tmp").glob(f"emugpu-run-{process.pid}-*"))


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_everything_within_three_seconds(
    inputs: Path, number: signal.Signals, in_time: Callable[..., bool]
) -> None:
    process = started_compare(inputs)
    children = descendants(process.pid)
    assert len(children) == 7  # the fork server, managers and jobs
    asked = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=40)
    assert in_time(most_s=3, since_s=asked)
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert_interrupted_and_gone(process, children)


@pytest.mark.processes
def test_impatience_leaves_nothing_behind_either(inputs: Path) -> None:
    process = started_compare(inputs)
    children = descendants(process.pid)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        process.send_signal(number)
        time.sleep(0.03)
    process.communicate(timeout=20)
    assert_interrupted_and_gone(process, children)


@pytest.mark.processes
def test_a_policy_that_catches_the_interrupt_can_still_be_ended(inputs: Path) -> None:
    (inputs / "deaf.py").write_text(
        "import time\nclass Deaf:\n    def plan(self, view):\n        text = 'plans'\n        while True:\n            try:\n"
        "                print(text, flush=True)\n                time.sleep(1000)\n            except:\n"
        "                text = 'deaf'\n"
    )
    program = "from emugpu import __main__, interrupts; interrupts.PATIENCE_S = 1; __main__.main()"
    options = [str(inputs / "w.csv"), "--cluster", str(inputs / "c.yaml"), "--policy", f"{inputs}/deaf.py:Deaf"]
    command = [sys.executable, "-c", program, "simulate", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stderr is not None
        assert any(line == "plans\n" for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert any(line == "deaf\n" for line in process.stderr)
        give_up = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < give_up:
            process.terminate()
            time.sleep(0.1)
        process.kill()
    assert process.returncode == -signal.SIGTERM


@pytest.mark.processes
def test_no_process_outlives_a_killed_compare(inputs: Path) -> None:
    process = started_compare(inputs)
    children = descendants(process.pid)
    process.kill()
    process.communicate()
    give_up = time.monotonic() + 20
    while (left := [pid for pid in children if _runs(pid)]) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not left
    for directory in Path("/tmp").glob(f"emugpu-run-{process.pid}-*"):
        subprocess.run(["rm", "-r", str(directory)], check=True)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_module_answers_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emugpu", "--help"], capture_output=True, check=True, env={**os.environ}
    )
    assert b"compare" in done.stdout


SERVICES = "services: [{name: s, service_s: 1, slo_s: 4, within: 0.9, until_s: 100, requests: [{at_s: 0, per_s: 1}]}]\n"


def test_services_are_in_the_table_the_page_and_the_files(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "services.yaml").write_text(SERVICES, encoding="utf-8")
    options = [
        "--services",
        str(inputs / "services.yaml"),
        "--policy",
        "fifo",
        "--parquet",
        "--out",
        str(inputs / "out"),
    ]
    assert run(inputs, "simulate", *options) == 0
    assert "inference services: requests that were answered in time" in capsys.readouterr().out
    header, row = (inputs / "out" / "services.csv").read_text(encoding="utf-8").splitlines()
    assert header == "policy,cluster,repeat,service,requests,in_time,promised,replica_s,wanted_s"
    assert row.startswith("fifo,simulated,0,s,100.000000,")
    assert (inputs / "out" / "services.parquet").exists()
    assert "promised" in (inputs / "out" / "report.html").read_text(encoding="utf-8")
    (level,) = json.loads((inputs / "out" / "summary.json").read_text(encoding="utf-8"))["policies"]["fifo"]["services"]
    assert (level["service"], level["cluster"], level["requests"]) == ("s", "simulated", 100.0)


def test_services_are_for_this_machine(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--services", "services.yaml", "--policy", "fifo", "--on", "kubernetes"]
    assert run(inputs, "compare", *options) == 2
    assert "--services: is for this machine" in capsys.readouterr().err
