"""What emugpu costs on a real cluster: starts, Allocate, idle CPU and memory of its own pods.

    emugpu cluster up --name study --node-gpus 4x1xV100 --cpu-nodes 8       the 12 workers of the AlloX study
    python -m tests.benchmarks kubernetes --name study

Beside each figure stands what the same pod costs without devices: the time until a plain pod runs is the peer of the time
until a pod with a device trains.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from typing import Any

from e2e.cases.kube import RESOURCE, SYSTEM, Kubectl, Node, command_pod, train_pod
from e2e.cases.lab import Lab
from emulator_runtime.domain.errors import ClusterError

IDLE_S = 30.0
SETTLE_S = 2.0
"""Between pods, so that one's end doesn't compete with the next one's start."""
OURS = r"-m (sharing_manager|deviceplugin|operators)|redis-server"
BUCKET = re.compile(r'^\w*allocate\w*_bucket\{[^}]*le="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE)
_TICKS = 100  # USER_HZ on Linux, for /proc/<pid>/stat


def main(argv: list[str]) -> int:
    """Print the table; 1 where there is no such cluster."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks kubernetes", description=__doc__)
    parser.add_argument(
        "--name",
        default=os.environ.get("EMUGPU_E2E_CLUSTER", "emugpu"),
        help="the cluster (default: that of EMUGPU_E2E_CLUSTER, else emugpu)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer pods, 5 s of idling")
    options = parser.parse_args(argv)
    try:
        lab = Lab(options.name)
    except ClusterError as error:
        print(f"{error}", file=sys.stderr)
        return 1
    kubectl, nodes = lab.kubectl, lab.nodes()
    pods = 10 if options.quick else 50
    devices = max(int(n["status"]["allocatable"].get(RESOURCE, 0)) for n in kubectl.list("nodes"))
    if not devices:
        print(f"no node of cluster {options.name} offers {RESOURCE}: nothing to measure", file=sys.stderr)
        return 1
    print(f"{len(nodes)} nodes with emugpu's daemons", flush=True)
    idle(nodes, 5.0 if options.quick else IDLE_S)
    memory(nodes)
    starts(kubectl, pods // 5)
    for busy in (False, True):
        allocate(kubectl, 2 * pods, devices, busy=busy)
    return 0


def row(what: str, *figures: str) -> None:
    print(f"{what:52}" + "".join(f"{figure:>16}" for figure in figures), flush=True)


def idle(nodes: list[Node], seconds: float) -> None:
    before = [cpu_s(node) for node in nodes]
    time.sleep(seconds)
    used = sum(cpu_s(node) - was for node, was in zip(nodes, before, strict=True))
    row("CPU of all our pods, idle (cores)", f"{used / seconds:.3f}")


def cpu_s(node: Node) -> float:
    script = f"for p in $(pgrep -f -- '{OURS}'); do cat /proc/$p/stat 2>/dev/null; done"
    lines = node.sh(script).splitlines()
    return sum(sum(map(int, line.rpartition(")")[2].split()[11:13])) for line in lines) / _TICKS


def memory(nodes: list[Node]) -> None:
    """Of a node's two daemons; PSS shares what several processes map (the image's files) among them."""
    script = (
        "for p in $(pgrep -f -- '^python3 -m (sharing_manager|deviceplugin)'); do "
        "grep -E '^(Rss|Pss):' /proc/$p/smaps_rollup; done"
    )
    sums = []
    for node in nodes:
        found = re.findall(r"^(Rss|Pss):\s+(\d+) kB", node.sh(script), re.MULTILINE)
        sums.append({kind: sum(int(kb) for k, kb in found if k == kind) / 1024 for kind in ("Rss", "Pss")})
    for kind in ("Rss", "Pss"):
        values = [figures[kind] for figures in sums]
        most = f"{max(values):.1f}"
        row(f"memory of a node's daemons, {kind.upper()} (MiB): mean, most", f"{statistics.mean(values):.1f}", most)


def starts(kubectl: Kubectl, count: int) -> None:
    plain, training = [], []
    for number in range(count):
        pod = train_pod(f"plain{number}", gpus=1)
        container = pod["spec"]["containers"][0]
        container |= {"args": ["--help"], "resources": {}}
        plain.append(timed(kubectl, pod))
        training.append(
            timed(kubectl, train_pod(f"train{number}", "--step-time-s", "0.001", "--memory", "1GiB", "--steps", "1"))
        )
    figures = [statistics.median(values) for values in (plain, training)]
    row(
        "pod created until ended (s): plain, one step, ratio",
        *(f"{f:.2f}" for f in figures),
        f"{figures[1] / figures[0]:.2f}",
    )


def timed(kubectl: Kubectl, pod: dict[str, Any]) -> float:
    began = time.monotonic()
    kubectl.create(pod)
    kubectl("wait", f"pod/{pod['metadata']['name']}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    took = time.monotonic() - began
    kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
    return took


def allocate(kubectl: Kubectl, calls: int, devices: int, *, busy: bool) -> None:
    """Pods one after another, each with a container per device of a node; the kubelet allocates for all of them in turn."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 if busy else 0)]
    before = buckets(kubectl)
    try:
        for number in range(-(-calls // devices)):
            name = f"allocate{number}"
            kubectl.create(many_containers(name, devices))
            kubectl.wait_phase(name, "Running", within_s=120)
            kubectl("delete", "pod", name, "--grace-period=1")
            time.sleep(SETTLE_S)
    finally:
        for process in spinning:
            process.kill()
            process.wait()
        kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    seen = {limit: count - before.get(limit, 0.0) for limit, count in buckets(kubectl).items()}
    label = "both cores busy" if busy else "idle"
    figures = [f"{1e3 * quantile(seen, share):.1f}" for share in (0.5, 0.99, 1.0)]
    row(f"Allocate, {label} (ms, upper bounds): p50, p99, most, calls", *figures, f"{max(seen.values()):.0f}")


def many_containers(name: str, count: int) -> dict[str, Any]:
    pod = command_pod(name, "sleep", "1000")
    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [container | {"name": f"c{n}"} for n in range(count)]
    return pod


def buckets(kubectl: Kubectl) -> dict[float, float]:
    """Cumulated counts of the plugins' Allocate histogram by upper bound (seconds), over all nodes."""
    found: dict[float, float] = {}
    for pod in kubectl.within(SYSTEM).list("pods", "-l", "app.kubernetes.io/component=node"):
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:9401/proxy/metrics"
        for limit, value in BUCKET.findall(kubectl("get", "--raw", path)):
            found[float(limit)] = found.get(float(limit), 0.0) + float(value)
    return found


def quantile(calls: dict[float, float], share: float) -> float:
    """The upper bound of the bucket that the quantile lies in."""
    total = max(calls.values())
    return next(limit for limit in sorted(calls) if calls[limit] >= share * total)
