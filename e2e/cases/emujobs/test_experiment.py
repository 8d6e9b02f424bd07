"""The results of an experiment are right although its operator, its scheduler and Redis are killed ten times at random moments.

EMUGPU_E2E_SEED chooses other moments. What was killed when is printed.
"""

from __future__ import annotations

import asyncio
import csv
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cases.conftest import ROOT
from e2e.cases.emujobs.test_emujobs import at_s, check_runs
from e2e.cases.kube import SYSTEM, Kubectl, Object, eventually
from e2e.cases.lab import Lab
from e2e.cases.ledger import Ledger, Reported, check_every_step_once
from operators.experiments.cluster_state import read_cluster_state
from operators.experiments.emujobs import EXPERIMENT_LABEL
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection
from scheduler_sims.inputs.cluster_file import ClusterSpec

pytestmark = [pytest.mark.alone, pytest.mark.long]

JOBS = 20
STEP_S = 0.1
OPERATOR = "[p]ython3 -m operators.jobs"
REDIS = "[r]edis-server"
KILLS = (
    *("the operator's process", "the operator's pod") * 2,
    *("the scheduler",) * 3,
    *("Redis's process",) * 3,
)
"""Redis and the operator keep their data in their pods here, without volumes. Killing both pods would lose the events that the
nodes have deleted, so Redis is only killed as a process."""
LOG_S = 0.05
"""The largest allowed difference between a status and the event log; larger clock offsets are reported."""


def seconds_and_gpus() -> Iterator[tuple[float, float, int]]:
    """Submission, run time and GPUs of each job, the same in every run. Long jobs come first, so that short ones preempt them."""
    chance = random.Random("ten kills/jobs")
    for number in range(JOBS):
        shortest, longest = (35, 75) if number < JOBS // 2 else (8, 25)
        submit_s = round(number * 5 + chance.uniform(0, 4), 1)
        yield submit_s, float(chance.randint(shortest, longest)), chance.choice((1, 2, 4, 8, 8))


def workload() -> str:
    rows = [
        f"job-{number},{submit_s},{gpus},0.1,{length_s},{round(length_s / STEP_S)}"
        for number, (submit_s, length_s, gpus) in enumerate(seconds_and_gpus())
    ]
    return "\n".join(["job_id,submit_s,num_gpus,cpus,gpu_duration_s,steps", *rows]) + "\n"


def cluster_file(spec: ClusterSpec) -> str:
    """The nodes of the cluster as a cluster file."""
    nodes = [
        f"- {{name: {node.name}, gpus: {len(node.devices)}, gpu_type: {node.gpu_type}, cpus: {node.cpu_milli / 1000:g}}}"
        for node in spec.nodes
    ]
    return "\n".join(["nodes:", *nodes]) + "\n"


def nodes_of(kubeconfig: Path) -> ClusterSpec:
    async def ask() -> ClusterSpec:
        api = KubeApi(connection(kubeconfig))
        try:
            return (await read_cluster_state(api)).spec
        finally:
            await api.close()

    return asyncio.run(ask())


@dataclass(frozen=True)
class Comparison:
    """A running `emugpu compare --on kubernetes` under SRTF, which writes its files to `folder`."""

    process: subprocess.Popen[bytes]
    folder: Path

    def finish(self, within_s: float) -> dict[str, float]:
        """Waits for the end; returns the observed JCT (seconds) of each finished job."""
        assert self.process.wait(within_s) == 0, self.output()
        with (self.folder / "out" / "jobs.csv").open(encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["cluster"] == "kubernetes"]
        return {row["job_id"]: float(row["jct_s"]) for row in rows if row["status"] == "finished"}

    def output(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @property
    def scheduler(self) -> int:
        """The process id of the scheduler program; 0 if there is none at the moment."""
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                words = (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if int(parent) == self.process.pid and b"scheduler" in words:
                return int(path.name)
        return 0


@contextmanager
def comparison(kubectl: Kubectl, folder: Path, *options: str) -> Iterator[Comparison]:
    folder.mkdir()
    (folder / "workload.csv").write_text(workload(), encoding="utf-8")
    (folder / "cluster.yaml").write_text(cluster_file(nodes_of(kubectl.kubeconfig)), encoding="utf-8")
    files = (str(folder / "workload.csv"), "--cluster", str(folder / "cluster.yaml"), "--out", str(folder / "out"))
    where = ("--on", "kubernetes", "--kubeconfig", str(kubectl.kubeconfig), "--no-calibration")
    command = [sys.executable, "-m", "emugpu", "compare", *files, *where, "--policy", "srtf", *options]
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | {"PYTHONPATH": str(ROOT)})
        try:
            yield Comparison(process, folder)
        finally:
            process.terminate()
            process.wait(240)


def namespaces(admin: Kubectl) -> list[str]:
    """The namespaces of experiments."""
    return [found["metadata"]["name"] for found in admin.list("namespaces", "-l", EXPERIMENT_LABEL)]


@pytest.fixture
def run_namespace(admin: Kubectl) -> Iterator[Callable[[], Kubectl]]:
    """kubectl in the namespace of the only experiment, as soon as it exists. The namespace is deleted at the end."""
    assert not namespaces(admin)
    try:
        yield lambda: admin.within(eventually("the experiment's namespace", lambda: namespaces(admin))[0])
    finally:
        for name in namespaces(admin):
            admin("delete", "namespace", name, "--timeout=120s", timeout_s=150)


def test_ten_kills_change_no_result(
    lab: Lab,
    admin: Kubectl,
    ledger: Ledger,
    run_namespace: Callable[[], Kubectl],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with comparison(admin, tmp_path / "quiet") as quiet:
        undisturbed = quiet.finish(within_s=600)
    assert len(undisturbed) == JOBS
    assert not namespaces(admin)  # compare has deleted them
    with comparison(admin, tmp_path / "killed", "--keep") as killed:
        kills = ten_kills(killed, run_namespace(), Victims(lab, admin, killed))
        disturbed = killed.finish(within_s=900)
    with capsys.disabled():
        print("\n" + "\n".join([*kills, mean_of("without kills", undisturbed), mean_of("with them", disturbed)]))
    assert set(disturbed) == set(undisturbed)
    within = run_namespace()
    check_jobs(within, ledger, disturbed)
    within("delete", "emujobs", "--all", "--timeout=60s")
    admin("delete", "namespace", within.namespace, "--timeout=120s", timeout_s=150)
    assert not namespaces(admin)


@dataclass(frozen=True)
class Victims:
    """What can be killed; each method returns the number of processes or pods that it killed."""

    lab: Lab
    admin: Kubectl
    comparison: Comparison

    def strike(self, victim: str) -> int:
        if victim == "the scheduler":
            return self._scheduler()
        if victim == "the operator's pod":
            return self._pods("jobs")
        program = OPERATOR if victim == "the operator's process" else REDIS
        return sum(node.kill9(program) for node in self.lab.nodes())

    def _scheduler(self) -> int:
        pid = self.comparison.scheduler
        if pid:
            os.kill(pid, 9)
        return int(pid > 0)

    def _pods(self, component: str) -> int:
        within, label = self.admin.within(SYSTEM), f"app.kubernetes.io/component={component}"
        there = [pod for pod in within.list("pods", "-l", label) if "deletionTimestamp" not in pod["metadata"]]
        within("delete", "pods", "-l", label, "--force", "--grace-period=0", "--wait=false")
        return len(there)


def ten_kills(killed: Comparison, within: Kubectl, victims: Victims) -> list[str]:
    """Kill programs while jobs run; returns a sentence for each kill. Waits for a program that is still down."""
    chance = random.Random(os.environ.get("EMUGPU_E2E_SEED", "ten kills/moments"))
    strikes = list(KILLS)
    chance.shuffle(strikes)
    eventually("jobs run", lambda: phases(within).count("Running") >= 2, within_s=120)
    began_s, kills = time.monotonic(), []
    for victim in strikes:
        time.sleep(chance.uniform(2, 14))
        eventually(f"{victim} is there to be killed", lambda victim=victim: victims.strike(victim), within_s=60)
        kills.append(f"{time.monotonic() - began_s:6.1f} s: {victim} is killed; {', '.join(counts(phases(within)))}")
    assert killed.process.poll() is None, killed.output()
    assert phases(within).count("Succeeded") < JOBS, "the last kill came too late; " + "; ".join(kills)
    return kills


def phases(kubectl: Kubectl) -> list[str]:
    return [found.get("status", {}).get("phase", "Unseen") for found in kubectl.list("emujobs")]


def counts(found: Sequence[str]) -> list[str]:
    return [f"{found.count(phase)} {phase}" for phase in sorted(set(found))]


def mean_of(title: str, jct_s: Mapping[str, float]) -> str:
    return f"{title}: {len(jct_s)} jobs, mean JCT {sum(jct_s.values()) / len(jct_s):.1f} s"


def check_jobs(kubectl: Kubectl, ledger: Ledger, jct_s: Mapping[str, float]) -> None:
    """Checks that each job's steps, figures and times agree in its status, in the event log and in Kubernetes."""
    steps = {f"job-{n}": round(length_s / STEP_S) for n, (_, length_s, _) in enumerate(seconds_and_gpus())}
    found = {job["metadata"]["name"]: job for job in kubectl.list("emujobs")}
    assert set(found) == set(steps)
    logs = eventually("the log has all ends", lambda: complete_logs(ledger, found, steps), within_s=180, show=False)
    for name, job in found.items():
        status = job["status"]
        assert status["phase"] == "Succeeded", job
        assert status["failures"] <= 1, (
            job
        )  # a container that is stopped while it starts may end with 2 (exit_codes.py)
        check_runs(status, steps[name], len(status["runs"]))
        check_every_step_once(logs[name], steps[name])
        check_times(job, logs[name], kubectl.list("pods", "-l", f"emugpu.dev/job={name}"))
        assert jct_s[name] == pytest.approx(status["observedJCTSeconds"], abs=0.001)
    assert max(len(job["status"]["runs"]) for job in found.values()) > 1, "no job was preempted: nothing is proved"


def complete_logs(
    ledger: Ledger, jobs: Mapping[str, Object], steps: Mapping[str, int]
) -> dict[str, list[Reported]] | None:
    """All events of each job, when they cover all its steps. Redis may still be receiving events again that it lost."""
    events = ledger.events()
    logs = {name: [e for e in events if e.job_key.startswith(job["metadata"]["uid"])] for name, job in jobs.items()}
    known = {name: sum(e.steps_done - e.from_step for e in log) for name, log in logs.items()}
    ended = all(any(e.kind == "finished" for e in log) for log in logs.values())
    return logs if ended and all(known[name] >= steps[name] for name in steps) else None


def check_times(job: Object, log: Sequence[Reported], pods: Sequence[Object]) -> None:
    """Checks that the end is the event log's, and that Kubernetes' times (whole seconds) agree with it."""
    status, created_s = job["status"], at_s(job["metadata"]["creationTimestamp"])
    submitted_s, finished_s = at_s(status["submittedAt"]), at_s(status["finishedAt"])
    (end,) = [event for event in log if event.kind == "finished"]
    assert finished_s == pytest.approx(end.wall_ns / 1e9, abs=LOG_S)
    assert 0 <= submitted_s - created_s < 4, job  # observed within 3 s of its creation; otherwise the creation counts
    states = [container["state"] for pod in pods for container in pod["status"].get("containerStatuses", ())]
    last_s = max(at_s(state["terminated"]["finishedAt"]) for state in states if "terminated" in state)
    assert -1 < last_s - finished_s < 5, (job, states)  # the process ends after its last step
