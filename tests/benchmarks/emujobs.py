"""EmuJobs by the thousand: how far our controller lags behind, and what it costs beside the same Jobs without it.

1,000 EmuJobs of 1, 2, 4 and 8 GPUs that run for 30 to 120 s are submitted at 5/s to 625 nodes with 8 V100 each. Kubernetes'
programs are the real ones, kwok plays the kubelets (kwok_cluster.py); ours are real processes. Each turn has a new cluster:

    Jobs alone    the peer: the same Jobs, pod for pod, created directly; the lags are the Job controller's own
    EmuJobs       python -m operators.jobs makes the Jobs; kube-scheduler places the pods
    scheduled     and `emugpu scheduler --policy fifo` says which Job goes on when and where (actuator jobs)

Lags are from the client's time of an answer, or from when a watch told of a change, until a watch tells of what follows;
all by the clock of this process. A decision of the scheduler is from its first event until all of it is written. CPU and
requests are from the first submission until the last end; memory is the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.node.layout import JOB_LABEL
from operators.jobs.manifests import Images, job_document
from operators.kube.documents import Key, condition_holds, object_at, text_at, texts_of
from operators.objects.emujob import EmuJob
from tests.benchmarks.emujobs_report import (
    ALONE,
    BENCHMARK,
    CONTROLLER,
    OTHERS,
    PLAIN,
    SCHEDULED,
    SCHEDULER,
    TURNS,
    Turn,
    print_costs,
    print_lags,
)
from tests.benchmarks.kwok_cluster import GPUS, RUN_TIME, KwokCluster

NAMESPACE = "default"
EMUJOBS = f"/apis/emugpu.dev/v1alpha1/namespaces/{NAMESPACE}/emujobs"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SIZES = (1, 1, 1, 2, 2, 4, 8)
IMAGE = "emugpu:benchmark"
PATIENCE_S = 300.0
"""After the last job should have ended."""
OURS = {PLAIN: (CONTROLLER,), SCHEDULED: (CONTROLLER, SCHEDULER)}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done. `run_s`: the shortest and the longest time that a job runs."""

    jobs: int = 1000
    nodes: int = 625
    rate_per_s: float = 5.0
    run_s: tuple[int, int] = (30, 120)


QUICK = Size(jobs=20, nodes=10, rate_per_s=10.0, run_s=(1, 3))


@dataclass(frozen=True, slots=True)
class Submitted:
    """One job of the mixture."""

    name: str
    gpus: int
    run_s: int

    def emujob(self, *, scheduled: bool = False) -> dict[str, Any]:
        """The EmuJob; its pod says to kwok how long it runs."""
        spec = {
            "steps": 10 * self.run_s,
            "stepTime": "100ms",
            "memory": "4Gi",
            "resources": {"emuGPU": self.gpus},
            "template": {"annotations": {RUN_TIME: f"{self.run_s}s"}},
            **({"scheduler": {"actuator": "jobs", "name": "benchmark"}} if scheduled else {}),
        }
        return {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuJob", "metadata": {"name": self.name}, "spec": spec}

    def job(self) -> dict[str, Any]:
        """The Job that our controller makes of it, without an owner."""
        facts = EmuJob(Key(NAMESPACE, self.name, "0"), spec_json=self.emujob()["spec"])
        document = job_document(facts, facts.spec, Images(IMAGE), facts.spec.configurations[0], ())
        del document["metadata"]["ownerReferences"]
        return document


def mixture(size: Size) -> list[Submitted]:
    """The same jobs in each turn and each run."""
    gpus, run_s = Random("emujobs/gpus"), Random("emujobs/run_s")
    return [Submitted(f"job-{n:04}", gpus.choice(SIZES), run_s.randint(*size.run_s)) for n in range(size.jobs)]


def main(argv: list[str]) -> int:
    """Print the tables; 1 where a cluster can't be started or a job didn't end."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks emujobs", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="20 jobs of 1 to 3 s, 10 nodes, only the turn with all programs"
    )
    parser.add_argument("--turn", action="append", choices=TURNS, help="only this one; more than once for several")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing outlives a stopped benchmark
    size = QUICK if options.quick else Size()
    print(
        f"{size.jobs} jobs at {size.rate_per_s:g}/s, {size.nodes} nodes x {GPUS} GPUs, {os.cpu_count()} cores",
        flush=True,
    )
    turns: dict[str, Turn] = {}
    try:
        for name in options.turn or ((SCHEDULED,) if options.quick else TURNS):
            turns[name] = run_turn(name, size)
            print_lags(name, turns[name])
    except EmuGpuError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    print_costs(turns, size.jobs)
    return int(any(turn.unfinished for turn in turns.values()))


# ---- one turn


def run_turn(name: str, size: Size) -> Turn:
    """Raises ClusterError where the cluster or a program of ours doesn't come up."""
    turn = Turn()
    with KwokCluster(size.nodes) as cluster:
        pids = {**cluster.server.programs, **start_programs(name, cluster), BENCHMARK: os.getpid()}
        cluster.follow(JOBS, lambda kind, job, now_s: see_job(turn, job, now_s))
        cluster.follow(PODS, lambda kind, pod, now_s: see_pod(turn, pod, now_s))
        cluster.follow(EMUJOBS, lambda kind, emujob, now_s: see_emujob(turn, emujob, now_s))
        before, cpu_s = cluster.requests(), cpu_of_all(pids)
        submit(cluster, name, mixture(size), size.rate_per_s, turn)
        turn.unfinished = wait_for(cluster, turn, "Complete" if name == ALONE else "phase Succeeded", size)
        turn.load = os.getloadavg()[0]
        turn.requests = {key: count - before.get(key, 0) for key, count in cluster.requests().items()}
        turn.cpu_s = {program: used_s - cpu_s[program] for program, used_s in cpu_of_all(pids).items()}
        turn.memory_mib = {program: peak_mib(pid) for program, pid in pids.items()}
        if name == SCHEDULED:
            turn.decisions_ms = sorted(decisions_ms(cluster.output(SCHEDULER)))
        if turn.unfinished:
            for program in OURS.get(name, ()):
                print(f"{program} says: {cluster.logs(program)}", file=sys.stderr)
    return turn


def start_programs(name: str, cluster: KwokCluster) -> dict[str, int]:
    """Our programs of this turn, ready to act; process ids by name."""
    pids = {}
    for program in OURS.get(name, ()):
        port = free_port()
        pids[program] = (start_controller if program == CONTROLLER else start_scheduler)(cluster, port)
        wait_ready(program, port, cluster)
    return pids


def start_controller(cluster: KwokCluster, port: int) -> int:
    values = {"IMAGE": IMAGE, "IDENTITY": "benchmark", "NAMESPACE": NAMESPACE, "METRICS_PORT": str(port)}
    variables = {f"EMUGPU_JOBS_{key}": value for key, value in values.items()}
    return cluster.program(CONTROLLER, "operators.jobs", **variables).pid


def start_scheduler(cluster: KwokCluster, port: int) -> int:
    command = f"emugpu scheduler --policy fifo --name benchmark --lease-namespace default --json --metrics-port {port}"
    return cluster.program(SCHEDULER, *command.split()).pid


def decisions_ms(output: str) -> list[float]:
    """How long each decision took that started something."""
    decisions = [json.loads(line) for line in output.splitlines()]
    return [1e3 * decision["took_s"] for decision in decisions if decision.get("started")]


def submit(cluster: KwokCluster, name: str, jobs: Sequence[Submitted], rate_per_s: float, turn: Turn) -> None:
    """At a steady rate whatever the answers take; one that is late is made up for."""
    connection = cluster.connect()
    path = JOBS if name == ALONE else EMUJOBS
    documents = [job.job() if name == ALONE else job.emujob(scheduled=name == SCHEDULED) for job in jobs]
    began_s = time.monotonic()
    for number, document in enumerate(documents):
        time.sleep(max(0.0, began_s + number / rate_per_s - time.monotonic()))
        cluster.check()
        connection.send("POST", path, document)
        turn.mark("accepted", document["metadata"]["name"], time.monotonic())
    accepted_s = sorted(turn.at["accepted"].values())
    turn.rate_per_s = (len(documents) - 1) / (accepted_s[-1] - accepted_s[0])


def wait_for(cluster: KwokCluster, turn: Turn, what: str, size: Size) -> int:
    """Until it has happened to all jobs; to how many it didn't."""
    deadline_s = time.monotonic() + size.run_s[1] + PATIENCE_S
    while len(turn.at.get(what, {})) < size.jobs and time.monotonic() < deadline_s:
        cluster.check()
        time.sleep(0.1)
    return size.jobs - len(turn.at.get(what, {}))


# ---- what is seen


def see_job(turn: Turn, job: Mapping[str, Any], now_s: float) -> None:
    name = text_at(object_at(job, "metadata"), "name")
    turn.mark("Job", name, now_s)
    if not object_at(job, "spec").get("suspend"):
        turn.mark("let go", name, now_s)
    if condition_holds(object_at(job, "status"), "Complete"):
        turn.mark("Complete", name, now_s)


def see_pod(turn: Turn, pod: Mapping[str, Any], now_s: float) -> None:
    name = texts_of(object_at(pod, "metadata"), "labels").get(JOB_LABEL, "")
    turn.mark("pod", name, now_s)
    turn.mark(f"pod {text_at(object_at(pod, 'status'), 'phase')}", name, now_s)


def see_emujob(turn: Turn, emujob: Mapping[str, Any], now_s: float) -> None:
    phase = text_at(object_at(emujob, "status"), "phase")
    turn.mark(f"phase {phase}", text_at(object_at(emujob, "metadata"), "name"), now_s)


def cpu_of_all(pids: Mapping[str, int]) -> dict[str, float]:
    """Of these processes, and of all others together."""
    used_s = {program: cpu_of(pid) for program, pid in pids.items()}
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return {**used_s, OTHERS: (user + nice + system + irq + softirq) / _TICKS - sum(used_s.values())}


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / _TICKS


def peak_mib(pid: int) -> float:
    """The largest resident set of a process so far (proc_pid_status(5), VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_ready(program: str, port: int, cluster: KwokCluster, within_s: float = 60.0) -> None:
    """Until a program's /readyz says so. Raises ClusterError with what it printed where it doesn't."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise ClusterError(f"{program} was not ready within {within_s:g} s: {cluster.logs(program)}")
