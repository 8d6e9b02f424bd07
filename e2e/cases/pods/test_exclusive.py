"""No device has two exclusive holders at once, with 200 random pods of which some are force-deleted."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import defaultdict

import pytest

from e2e.cases.kube import Kubectl, Node, eventually, train_pod
from e2e.cases.ledger import Ledger, Reported

pytestmark = pytest.mark.alone

ENDS = ("finished", "released", "failed", "fenced", "suspended", "gone")


def holder_spans(events: list[Reported]) -> dict[str, list[tuple[int, int, str]]]:
    """(begin, end, job key) of each holder, by device. A node has one monotonic clock, so its spans can be compared."""
    open_: dict[tuple[str, str], tuple[int, list[str]]] = {}
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for event in events:
        key = (event.node, event.job_key)
        if event.kind == "attached":
            open_[key] = (event.at_ns, event.detail.split(","))
        elif event.kind in ENDS and key in open_:
            begin, devices = open_.pop(key)
            for device in devices:
                spans[device].append((begin, event.at_ns, event.job_key))
    for (_, job), (begin, devices) in open_.items():
        for device in devices:
            spans[device].append((begin, 2**63, job))
    return spans


def test_200_random_pods(kubectl: Kubectl, workers: list[Node], ledger: Ledger) -> None:
    pods = int(os.environ.get("EMUGPU_E2E_PODS", "30"))
    chance = random.Random("exclusive")
    alive: list[str] = []
    for number in range(pods):
        name = f"pod{number}"
        steps = chance.randrange(2, 60)
        args = ("--step-time-s", "0.05", "--memory", "1GiB", "--steps", str(steps))
        kubectl.create(train_pod(name, *args, gpus=chance.choice([1, 1, 2, 4, 8])))
        alive.append(name)
        if chance.random() < 0.3:
            victim = alive.pop(chance.randrange(len(alive)))
            force = ("--force", "--grace-period=0") if chance.random() < 0.7 else ()
            kubectl.try_("delete", "pod", victim, "--wait=false", *force)
        time.sleep(chance.uniform(0, 0.3))
    eventually(
        "all pods are done",
        lambda: all(p["status"]["phase"] in ("Succeeded", "Failed") for p in kubectl.list("pods")),
        within_s=600,
        every_s=2,
        show=False,
    )
    failed = [p["metadata"]["name"] for p in kubectl.list("pods") if p["status"]["phase"] == "Failed"]
    assert not failed, kubectl.describe(failed[0])
    time.sleep(2)
    spans = holder_spans([event for event in ledger.events() if event.namespace == kubectl.namespace])
    assert len(spans) > 8, "the pods used more than one node's devices"
    for device, held in spans.items():
        held.sort()
        for (_, end, first), (begin, _, second) in itertools.pairwise(held):
            assert begin >= end, f"{device} was held by {first} until {end} and by {second} from {begin}"
