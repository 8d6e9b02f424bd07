"""kill -9 of the node's daemons at random moments while Jobs run: containers survive, and each step is done once."""

from __future__ import annotations

import os
import random
import time

import pytest

from e2e.cases.kube import CONTAINERD, KUBELET, MANAGER, PLUGIN, SYSTEM, Kubectl, Node, eventually, train_job
from e2e.cases.ledger import Ledger, check_every_step_once

pytestmark = pytest.mark.alone

JOBS = 8
STEP_S = 0.1
VICTIMS = {
    "plugin": PLUGIN,
    "manager": MANAGER,
    "kubelet": KUBELET,
    "containerd": CONTAINERD,
    "redis": "[r]edis-server",
}


def kills() -> int:
    """Number of kills of each program: 3 in the smoke set, 20 in the long one."""
    return int(os.environ.get("EMUGPU_E2E_KILLS", "3"))


def device_uuids(kubectl: Kubectl) -> dict[str, str]:
    found = {}
    for pod in kubectl.list("pods"):
        if pod["status"]["phase"] == "Running":
            name = pod["metadata"]["name"]
            found[name] = kubectl.inside(name, "sh", "-c", "echo $EMUGPU_VISIBLE_DEVICES").strip()
    return found


def test_jobs_survive_all_kills(
    kubectl: Kubectl, admin: Kubectl, workers: list[Node], ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random("kills")
    strikes = [victim for victim in VICTIMS for _ in range(kills())]
    chance.shuffle(strikes)
    work_s = len(strikes) * 2.75
    steps = round(work_s / STEP_S)
    names = [f"job{n}" for n in range(JOBS)]
    args = ("--step-time-s", str(STEP_S), "--memory", "1GiB", "--steps", str(steps))
    kubectl.create(*(train_job(name, *args) for name in names))
    eventually("all run", lambda: sum(p["status"]["phase"] == "Running" for p in kubectl.list("pods")) == JOBS)
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kubectl.list("pods")}
    uuids = device_uuids(kubectl)
    assert len(set(uuids.values())) == JOBS
    published = [worker.sh("cat /var/lib/emugpu/inventory.json") for worker in workers]
    struck = dict.fromkeys(VICTIMS, 0)
    last_s = time.monotonic() + 0.9 * work_s - 10  # containerd forgets how a container ended that ends while it is down
    for victim in strikes:
        if time.monotonic() > last_s:
            break
        time.sleep(chance.uniform(0.5, 3.0))
        struck[victim] += strike(victim, chance, admin, workers)
    with capsys.disabled():
        print(f"\nkilled while {JOBS} jobs ran: {struck}")
    assert all(count >= kills() // 2 for count in struck.values()), struck
    kubectl.wait_jobs(names, within_s=work_s + 180)
    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in kubectl.list("pods")}
    assert after == before, "running containers did not live on"
    assert all(p["status"]["containerStatuses"][0]["restartCount"] == 0 for p in kubectl.list("pods"))
    assert [worker.sh("cat /var/lib/emugpu/inventory.json") for worker in workers] == published
    for name in names:
        uid = kubectl.get("job", name)["metadata"]["uid"]
        eventually(
            f"the end of {name} is reported",
            lambda uid=uid: any(e.kind == "finished" for e in ledger.of(uid)),
            within_s=60,
        )
        check_every_step_once(ledger.of(uid), steps)


def strike(victim: str, chance: random.Random, admin: Kubectl, workers: list[Node]) -> int:
    """Number of killed processes; 0 if the program is still down from the previous kill."""
    if victim != "redis":
        return chance.choice(workers).kill9(VICTIMS[victim])
    pod = admin.within(SYSTEM).try_("get", "pod", "emugpu-redis-0", "-o", "jsonpath={.spec.nodeName}")
    return sum(worker.kill9(VICTIMS[victim]) for worker in workers if worker.name == pod.stdout)
