"""kill -9 of everything on the way, at random moments, while Jobs run: containers live on, no step is lost or doubled."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from e2e.cases.kube import CONTAINERD, KUBELET, MANAGER, PLUGIN, SYSTEM, Kubectl, Node, eventually, train_job
from e2e.cases.ledger import Ledger, check_every_step_once

JOBS = 8
STEPS = 300
STEP_S = 0.1


def kills() -> int:
    """How often each program is killed: 5 in the smoke set, 20 in the long one."""
    return int(os.environ.get("EMUGPU_E2E_KILLS", "5"))


def device_uuids(kubectl: Kubectl) -> dict[str, str]:
    found = {}
    for pod in kubectl.list("pods"):
        if pod["status"]["phase"] == "Running":
            name = pod["metadata"]["name"]
            done = kubectl.try_("exec", name, "--", "sh", "-c", "echo $EMUGPU_VISIBLE_DEVICES")
            found[name] = done.stdout.strip()
    return found


@pytest.mark.parametrize("victim", ["plugin", "manager", "kubelet", "containerd", "redis"])
def test_jobs_survive(victim: str, kubectl: Kubectl, admin: Kubectl, workers: list[Node], ledger: Ledger) -> None:
    chance = random.Random(f"kills/{victim}")
    times = kills()
    steps = max(STEPS, round(times * 4.0 / STEP_S))
    names = [f"job{n}" for n in range(JOBS)]
    args = ("--step-time-s", str(STEP_S), "--memory", "1GiB", "--steps", str(steps))
    kubectl.create(*(train_job(name, *args) for name in names))
    eventually("all run", lambda: sum(p["status"]["phase"] == "Running" for p in kubectl.list("pods")) == JOBS)
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kubectl.list("pods")}
    uuids = device_uuids(kubectl)
    strike = striker(victim, admin, workers)
    for _ in range(times):
        time.sleep(chance.uniform(0.5, 3.0))
        assert strike(chance) > 0, f"no {victim} to kill"
    kubectl.wait_jobs(names, within_s=steps * STEP_S + 120)
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kubectl.list("pods")}
    assert after == before, "running containers did not live on"
    assert all(p["status"]["containerStatuses"][0]["restartCount"] == 0 for p in kubectl.list("pods"))
    assert len(set(uuids.values())) == JOBS
    for name in names:
        uid = kubectl.get("job", name)["metadata"]["uid"]
        eventually(
            f"the end of {name} is reported",
            lambda uid=uid: any(e.kind == "finished" for e in ledger.of(uid)),
            within_s=60,
        )
        check_every_step_once(ledger.of(uid), steps)


def striker(victim: str, admin: Kubectl, workers: list[Node]) -> Callable[[random.Random], int]:
    patterns = {"plugin": PLUGIN, "manager": MANAGER, "kubelet": KUBELET, "containerd": CONTAINERD}
    if victim in patterns:
        return lambda chance: chance.choice(workers).kill9(patterns[victim])

    def redis(_: random.Random) -> int:
        node = admin.within(SYSTEM).get("pod", "emugpu-redis-0")["spec"]["nodeName"]
        killed = 0
        for worker in [*workers, Node("", workers[0].docker)]:
            if worker.name == node:
                killed = worker.kill9("[r]edis-server")
        return killed or 1  # it may be down from the strike before

    return redis
