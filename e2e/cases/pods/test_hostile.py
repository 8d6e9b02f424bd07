"""A hostile pod on the same node: it gets no access to its neighbour's devices, and the neighbour's step times don't change."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

from e2e.cases.kube import Kubectl, Node, command_pod, eventually, train_pod
from e2e.cases.pods.test_training import profiled_step_s

pytestmark = pytest.mark.alone

ATTACK = textwrap.dedent(
    """
    import json, os, socket, struct, sys, threading, time
    path = os.environ["EMUGPU_MANAGER_SOCKET"]
    def frame(message):
        data = json.dumps(message).encode()
        return struct.pack(">I", len(data)) + data
    def connect():
        s = socket.socket(socket.AF_UNIX); s.connect(path); return s
    def ask(message):
        s = connect(); s.sendall(frame(message)); s.settimeout(5)
        size = struct.unpack(">I", s.recv(4))[0]; return json.loads(s.recv(size))
    stolen = sys.argv[1]
    print(json.dumps({"stolen": ask({"op": "attach", "version": 2, "token": stolen, "after_ns": 0})}), flush=True)
    print(json.dumps({"files": sorted(os.listdir("/edev")), "run": sorted(os.listdir("/run/emugpu"))}), flush=True)
    def flood():
        while True:
            try:
                s = connect()
                while True: s.sendall(frame({"op": "attach", "version": 2, "token": "0" * 64, "after_ns": 0}) * 50)
            except OSError: pass
    def never_reads():
        kept = []
        while True:
            try:
                s = connect(); s.setblocking(False); kept.append(s)
                s.send(frame({"op": "query", "token": os.environ["EMUGPU_TOKEN"]}) * 500)
            except OSError: pass
    def demands_ahead():
        kept, units = [], (600 * 10**9, 10 * 10**9)
        while True:
            try:
                s = connect(); s.settimeout(5); kept.append(s)
                s.sendall(frame({"op": "attach", "version": 3, "token": os.environ["EMUGPU_TOKEN"], "session": str(len(kept))}))
                size = struct.unpack(">I", s.recv(4))[0]; uuid = json.loads(s.recv(size))["devices"][0]["uuid"]
                for n in range(1000):
                    ahead = {"sequence": n, "ready_ns": time.monotonic_ns() + 9 * 10**9, "work_ns": units[n % 2]}
                    s.sendall(frame({"op": "demand", "resource": uuid} | ahead))
            except (OSError, KeyError, struct.error): pass
    def forks():
        while True:
            try:
                if os.fork() == 0: flood()
            except OSError: pass
    for way in sys.argv[2:]: threading.Thread(target=globals()[way]).start()
    """
)

OF_THE_MANAGER = ("flood", "flood", "never_reads", "demands_ahead")
ALL_WAYS = (*OF_THE_MANAGER, "forks")
"""Endless forks are for the kernel: it ends processes for want of memory, and the kubelet restarts the container."""


def test_a_hostile_neighbour_gets_and_stops_nothing(kubectl: Kubectl, workers: list[Node]) -> None:
    step_s = beside_an_attacker(kubectl, workers, ALL_WAYS, steps=100)
    assert step_s["mean"] == pytest.approx(profiled_step_s(), rel=0.03)
    assert step_s["median"] == pytest.approx(profiled_step_s(), rel=0.01)


@pytest.mark.long
def test_a_hostile_neighbour_delays_no_step(kubectl: Kubectl, workers: list[Node]) -> None:
    """A separate, long case, because the slowest 1% of the steps also shows any other load of the machine."""
    step_s = beside_an_attacker(kubectl, workers, OF_THE_MANAGER, steps=400)
    assert step_s["p99"] == pytest.approx(profiled_step_s(), rel=0.05)


def test_a_newcomer_gets_in_during_the_attack(kubectl: Kubectl, workers: list[Node]) -> None:
    """A new pod attaches and nvidia-smi works in it, although the attacker's connections fill the queue of the socket."""
    attack(kubectl, workers[0], ALL_WAYS, stolen="0" * 64)
    kubectl.wait_phase("hostile", "Running")
    eventually("the attack", lambda: '"files"' in kubectl.logs("hostile"))
    node = {"kubernetes.io/hostname": workers[0].name}
    newcomer = train_pod("newcomer", "--model", "resnet50", "--batch-size", "64", "--steps", "40", nodeSelector=node)
    newcomer["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "500m"}
    kubectl.apply(newcomer)
    kubectl.wait_phase("newcomer", "Running")
    for _ in range(5):
        table = kubectl.inside("newcomer", "sh", "-c", "nvidia-smi 2>&1")
        assert "not known" not in table, table
    kubectl.wait_phase("newcomer", "Succeeded", within_s=120)
    assert kubectl.summary("newcomer")["steps_done"] == 40
    assert kubectl.phase("hostile") == "Running"


def test_a_copied_token_stays_its_owners(kubectl: Kubectl, workers: list[Node]) -> None:
    """A token is refused in another pod even before its owner has used it, because the kubelet says which pod owns it."""
    for name in ("owner", "thief"):
        kubectl.apply(command_pod(name, "sleep", "1000", nodeSelector={"kubernetes.io/hostname": workers[0].name}))
    for name in ("owner", "thief"):
        kubectl.wait_phase(name, "Running")
    token = kubectl.inside("owner", "sh", "-c", "echo $EMUGPU_TOKEN").strip()
    train = ("emugpu", "train", "--step-time-s", "0.01", "--memory", "1GiB", "--steps", "3")
    stolen = kubectl.try_("exec", "thief", "--", "env", f"EMUGPU_TOKEN={token}", *train)
    assert stolen.returncode != 0
    assert "given to another pod" in stolen.stdout + stolen.stderr
    assert "finished: 3 steps" in kubectl("exec", "owner", "--", *train)


def beside_an_attacker(kubectl: Kubectl, workers: list[Node], ways: Sequence[str], *, steps: int) -> dict[str, float]:
    """Statistics of the step times (seconds) of a job beside a pod that attacks in these ways at once."""
    node = {"kubernetes.io/hostname": workers[0].name}
    neighbour = train_pod(
        "neighbour", "--model", "resnet50", "--batch-size", "64", "--steps", str(steps), nodeSelector=node
    )
    neighbour["spec"]["containers"][0]["resources"]["requests"] = {
        "cpu": "500m"
    }  # more than the attacker's, as a training pod usually has
    kubectl.apply(neighbour)
    kubectl.wait_phase("neighbour", "Running")
    token = kubectl.inside("neighbour", "sh", "-c", "echo $EMUGPU_TOKEN").strip()
    attack(kubectl, workers[0], ways, stolen=token)
    kubectl.wait_phase("neighbour", "Succeeded", within_s=180)
    log = kubectl.logs("hostile")
    assert '"ok": false' in log, log
    assert token not in log
    summary = kubectl.summary("neighbour")
    assert summary["steps_done"] == steps
    step_s: dict[str, float] = summary["step_s"]
    return step_s


def attack(kubectl: Kubectl, worker: Node, ways: Sequence[str], *, stolen: str) -> None:
    """Start the pod `hostile`, which tries this token, then attacks in these ways. It restarts when it runs out of memory."""
    forever = ("sh", "-c", 'while true; do python3 -c "$0" "$@"; done', ATTACK, stolen, *ways)
    node = {"kubernetes.io/hostname": worker.name}
    hostile = command_pod("hostile", *forever, nodeSelector=node, restartPolicy="Always")
    hostile["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "200m", "memory": "256Mi"}
    kubectl.apply(hostile)
