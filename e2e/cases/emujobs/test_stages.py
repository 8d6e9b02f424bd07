"""Jobs of a node that share its storage: what a pool says (spec.hostResources) decides how long the fetches of its jobs take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cases.emujobs.test_emujobs import allocate, emujob, finished, pods_of, wait_phase
from e2e.cases.kube import Kubectl, Node, eventually
from e2e.cases.ledger import Ledger, check_every_step_once

pytestmark = pytest.mark.alone

VALUES = """
pools:
- name: default
  gpus:
  - {type: V100, count: 8}
  hostResources:
    storage: 1
"""
STEPS = 150
WORK = {"steps": STEPS, "stepTime": "50ms", "fetchTime": "100ms", "scheduler": {"actuator": "jobs", "name": "case"}}


def test_two_jobs_on_one_storage_are_half_as_fast_in_their_fetches(
    kubectl: Kubectl,
    pools: Callable[[Path], None],
    admin: Kubectl,
    workers: list[Node],
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    """Steps of 50 ms whose input is fetched for 100 ms: 100 ms a step alone on a node, 200 ms for two jobs at once. Another job
    on the second node fetches nothing: 60 ms a step, of which its host takes 10 ms."""
    values = tmp_path / "values.yaml"
    values.write_text(VALUES, encoding="utf-8")
    pools(values)
    for worker in workers:
        eventually(f"{worker.name} shares its storage", lambda w=worker: shares(admin, w.name))
    time.sleep(5)  # the managers watch their Nodes
    nodes = {"left": workers[0].name, "right": workers[0].name, "alone": workers[1].name, "host": workers[1].name}
    unfetched = {name: value for name, value in WORK.items() if name != "fetchTime"} | {"hostTime": "10ms"}
    kubectl.apply(*(emujob(name, **(unfetched if name == "host" else WORK)) for name in nodes))
    for name, node in nodes.items():
        wait_phase(kubectl, name, "Queued")
        allocate(kubectl, name, node)
    medians_s = {}
    for name in nodes:
        wait_phase(kubectl, name, "Succeeded", within_s=120)
        uid = kubectl.get("emujob", name)["metadata"]["uid"]
        check_every_step_once(eventually("all steps are reported", lambda uid=uid: finished(ledger, uid)), STEPS)
        (pod,) = pods_of(kubectl, name)
        medians_s[name] = median_step_s(kubectl.logs(pod["metadata"]["name"]))
    assert medians_s == pytest.approx({"left": 0.2, "right": 0.2, "alone": 0.1, "host": 0.06}, rel=0.1)


def shares(admin: Kubectl, node: str) -> bool:
    """Whether the node's inventory has the storage."""
    inventory = admin.get("node", node)["metadata"]["annotations"].get("emugpu.dev/inventory", "")
    return '"hostResources"' in inventory


def median_step_s(printed: str) -> float:
    """The median step time that `emugpu train` printed as it ended."""
    found = re.search(r"^step time: .* median ([0-9.]+)", printed, re.MULTILINE)
    assert found is not None, printed
    return float(found[1]) / 1e3
