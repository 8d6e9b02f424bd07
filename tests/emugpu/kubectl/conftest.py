"""A small cluster as objects: three nodes with GPUs, one without, and an EmuJob in each phase."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from emugpu.kubectl.__main__ import main
from emugpu.kubectl.cluster import Cluster
from emulator_runtime.domain.gpu import Device, device_uuid
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from operators.kube.api import EMUJOB, EVENT, NODE, POD, POOL
from operators.kube.timestamps import rfc3339, rfc3339_micro
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.telemetry.metrics import NodeCollector
from sharing_manager.telemetry.model import DeviceTelemetry, NodeTelemetry, ProcessTelemetry
from tests.support.fake_api import FakeApi

Object = dict[str, Any]
START_S = 1_767_261_600  # 2026-01-01T10:00:00Z
NOW_S = START_S + 100.0
V100, A100, RESOURCE = "Tesla_V100-PCIE-32GB", "A100-SXM4-80GB", "emugpu.dev/emuGPU"
MEMORY = {V100: 32 * GIB, A100: 80 * GIB}
SYSTEM = "emugpu-system"


def at(seconds: float) -> str:
    """So many seconds after the start, as a MicroTime."""
    return rfc3339_micro(round((START_S + seconds) * 1e6) * 1000)


def coarse(seconds: float) -> str:
    return rfc3339((START_S + int(seconds)) * 10**9)


def node(name: str, gpus: dict[int, str], *, lost: str = "", pool: str = "default", ready: bool = True) -> Object:
    entries = tuple(
        DeviceEntry(
            Device(name, index, kind, MEMORY[kind]), healthy=not lost or index > 0, reason="" if index else lost
        )
        for index, kind in gpus.items()
    )
    resources = (ResourceEntry(RESOURCE, entries),) if entries else ()
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"emugpu.dev/pool": pool},
            "annotations": {"emugpu.dev/inventory": Inventory(name, resources, pool).to_json()},
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "emugpu.dev/host": "110", **({RESOURCE: str(len(gpus))} if gpus else {})},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def manager_pod(on: str) -> Object:
    labels = {"app.kubernetes.io/component": "node", "app.kubernetes.io/part-of": "emugpu"}
    ports = [{"name": "manager", "containerPort": 9400}]
    owner = {"kind": "DaemonSet", "uid": "ds", "controller": True}
    containers = [{"name": "plugin"}, {"name": "manager", "ports": ports}]
    return {
        "metadata": {"name": f"emugpu-node-{on}", "namespace": SYSTEM, "labels": labels, "ownerReferences": [owner]},
        "spec": {"nodeName": on, "containers": containers, "serviceAccountName": "emugpu-node"},
        "status": {"phase": "Running"},
    }


def pod(name: str, on: str, gpus: int, job: str = "", namespace: str = "lab", **status: Any) -> Object:
    limits = {RESOURCE: str(gpus)} if gpus else {"emugpu.dev/host": "1"}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": coarse(1),
            "labels": {"emugpu.dev/job": job} if job else {},
        },
        "spec": {"nodeName": on, "containers": [{"name": "train", "resources": {"limits": limits}}]},
        "status": {"phase": "Running", **status},
    }


def metrics(devices: dict[tuple[str, int, str], tuple[float, int, tuple[tuple[str, str], ...]]]) -> str:
    """The text that a manager of these devices gives: load, GiB in use, and who holds each, as (namespace, pod)."""
    found = []
    for (on, index, kind), (load, used, holders) in devices.items():
        processes = tuple(
            ProcessTelemetry(
                f"g{n}", f"job-{p}", 40 + n, PodIdentity("u", "c", ns, p, "train", f"key-{p}"), used * GIB, 5
            )
            for n, (ns, p) in enumerate(holders)
        )
        device = Device(on, index, kind, MEMORY[kind])
        found.append(DeviceTelemetry(device, RESOURCE, 1, True, "", used * GIB, load, 10**9, processes))
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: NodeTelemetry(0, tuple(found), 1, 2, 3), lambda: ()))
    return generate_latest(registry).decode()


def emujob(name: str, phase: str = "", namespace: str = "lab", **members: Any) -> Object:
    """`members` of status; `spec`, `labels` and `annotations` are taken out of them."""
    spec = {"steps": 100, "stepTime": "1s", **members.pop("spec", {})}
    metadata = {"labels": members.pop("labels", {}), "annotations": members.pop("annotations", {})}
    submitted = members.pop("submitted", 0.25)
    status: Object = {"submittedAt": at(submitted), "phase": phase, "steps": 100, **members} if phase else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": coarse(submitted),
            **metadata,
        },
        "spec": spec,
        "status": status,
    }


def condition(kind: str, status: bool, reason: str, message: str = "", since: float = 0) -> Object:
    word = "True" if status else "False"
    return {"type": kind, "status": word, "reason": reason, "message": message, "lastTransitionTime": coarse(since)}


def a_run(
    on: str, indexes: list[int], begin: float, end: float | None, steps: tuple[int, int], ended: str = ""
) -> Object:
    devices = [device_uuid(on, index) for index in indexes]
    times = {"from": at(begin), **({} if end is None else {"to": at(end)})}
    return {"node": on, "devices": devices, **times, "fromStep": steps[0], "toStep": steps[1], "ended": ended}


ALLOX = {"scheduler": {"actuator": "jobs", "name": "allox", "schedulerName": "default-scheduler"}}
JOBS = [
    emujob(
        "bert-1",
        "Running",
        gpus=2,
        node="w1",
        stepsDone=40,
        startedAt=at(58.5),
        queueingDelaySeconds=5.25,
        preemptions=1,
        predictedJCTSeconds={"value": 160.0, "by": "allox", "at": at(0.3)},
        runs=[a_run("w1", [0, 1], 5.5, 30.125, (0, 24), "released"), a_run("w1", [0, 3], 58.5, None, (24, 40))],
        conditions=[
            condition("Accepted", True, "Fits"),
            condition("Scheduled", True, "PodsBound", since=57),
            condition("Progressing", True, "Running", since=58),
        ],
        spec=ALLOX,
        labels={"emugpu.dev/experiment": "a7", "team": "nlp"},
    ),
    emujob(
        "res-2",
        "Succeeded",
        gpus=1,
        submitted=2.0,
        node="w1",
        stepsDone=100,
        startedAt=at(3.0),
        finishedAt=at(63.5),
        observedJCTSeconds=61.5,
        queueingDelaySeconds=1.0,
        serviceSeconds=60.5,
        slowdown=1.025,
        fairness=0.51,
        preemptions=0,
        predictedJCTSeconds={"value": 60.0, "by": "allox", "at": at(2.1)},
        runs=[a_run("w1", [2], 3.0, 63.5, (0, 100), "finished")],
        conditions=[condition("Complete", True, "AllStepsDone", since=63)],
        spec=ALLOX,
        labels={"emugpu.dev/experiment": "a7"},
    ),
    emujob(
        "vgg-3",
        "Queued",
        gpus=4,
        submitted=40.0,
        conditions=[
            condition("Accepted", True, "Fits", since=40),
            condition("Scheduled", False, "WaitingForScheduler", "scheduler allox has not allocated anything", 40),
            condition("Progressing", False, "Queued", since=40),
        ],
        spec=ALLOX,
    ),
    emujob(
        "alex-4",
        "Preempted",
        gpus=1,
        submitted=10.0,
        stepsDone=12,
        startedAt=at(12.0),
        preemptions=1,
        runs=[a_run("w2", [0], 12.0, 36.5, (0, 12), "released")],
        conditions=[condition("Accepted", True, "Fits"), condition("Progressing", False, "Preempted", since=37)],
        spec=ALLOX,
    ),
    emujob(
        "cpu-5",
        "Running",
        gpus=0,
        submitted=20.0,
        node="c1",
        stepsDone=30,
        startedAt=at(22.0),
        runs=[a_run("c1", [], 22.0, None, (0, 30))],
        conditions=[condition("Progressing", True, "Running", since=22)],
    ),
    emujob(
        "bad-6",
        "Failed",
        gpus=1,
        submitted=50.0,
        stepsDone=7,
        startedAt=at(52.0),
        finishedAt=at(60.0),
        runs=[a_run("w2", [1], 52.0, 59.0, (0, 7), "failed")],
        conditions=[
            condition("Failed", True, "BackoffLimitExceeded", "Job has reached the specified backoff limit", 60)
        ],
    ),
    emujob(
        "huge-7",
        "Rejected",
        gpus=64,
        submitted=55.0,
        conditions=[condition("Accepted", False, "NoSuchNode", "no node offers 64 GPUs; the largest has 4", 55)],
    ),
    emujob("new-8", submitted=99.0),
    emujob("other-9", "Running", namespace="ops", gpus=1, node="w2", stepsDone=3, startedAt=at(80.0), submitted=79.0),
]


def compared(policy: str, namespace: str, ends: list[float], *, failed: bool = False) -> list[Object]:
    """Jobs of a run of experiment b1, submitted a second apart, the first one ten minutes before the start."""
    phases = ["Failed" if failed and number == 0 else "Succeeded" for number in range(len(ends))]
    conditions = [
        condition("Failed", True, "BackoffLimitExceeded", "Job has reached the specified backoff limit", -500)
    ]
    return [
        emujob(
            f"j-{number}",
            phase,
            namespace=namespace,
            gpus=1,
            submitted=-600.0 + number,
            startedAt=at(-590.0),
            finishedAt=at(-600.0 + end),
            stepsDone=100,
            runs=[a_run("w1", [number], -590.0, -600.0 + end, (0, 100), "finished")],
            predictedJCTSeconds={"value": 60.0, "by": policy, "at": at(-599.0)},
            conditions=conditions if phase == "Failed" else [],
            spec={"scheduler": {"actuator": "jobs", "name": f"{policy}-x", "schedulerName": "default-scheduler"}},
            labels={"emugpu.dev/experiment": namespace.removeprefix("emugpu-exp-")},
            annotations={
                "emugpu.dev/job-id": f"Job {number}",
                "emugpu.dev/row": str(number + 1),
                "emugpu.dev/policy": policy,
            },
        )
        for number, (end, phase) in enumerate(zip(ends, phases, strict=True))
    ]


JOBS += [
    *compared("allox", "emugpu-exp-b1-1", [40.0, 62.5, 63.0]),
    *compared("drf-sjf", "emugpu-exp-b1-2", [50.0, 81.5, 93.0]),
    *compared("drf-sjf", "emugpu-exp-b1-3", [51.0, 82.5, 92.0]),
]
PODS = [
    *(manager_pod(name) for name in ("w1", "w2", "w3", "c1")),
    pod("bert-1-0-abcde", "w1", 2, "bert-1"),
    pod("cpu-5-0-fghij", "c1", 0, "cpu-5"),
    pod("other-9-0-klmno", "w2", 1, "other-9", "ops"),
    pod("plain", "w2", 1),
    pod("ended", "w1", 4, phase="Succeeded"),
]
EVENTS = [
    {
        "metadata": {"name": "e1", "namespace": "lab"},
        "eventTime": at(31.5),
        "reason": "Preempted",
        "note": "preempted 1 times, 24/100 steps done",
        "type": "Normal",
        "regarding": {"kind": "EmuJob", "name": "bert-1", "namespace": "lab", "uid": "uid-bert-1"},
    },
    {
        "metadata": {"name": "e2", "namespace": "lab"},
        "eventTime": None,
        "deprecatedFirstTimestamp": coarse(3),
        "deprecatedLastTimestamp": coarse(5),
        "deprecatedCount": 3,
        "reason": "FailedScheduling",
        "note": "0/5 nodes are available:\n 5 Insufficient emugpu.dev/emuGPU.",
        "type": "Warning",
        "regarding": {"kind": "Pod", "name": "bert-1-0-zzzzz", "namespace": "lab", "uid": "gone"},
    },
    {
        "metadata": {"name": "e3", "namespace": "lab"},
        "eventTime": at(3),
        "reason": "Pulled",
        "note": "of somebody else",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "bert-10-0-zzzzz", "namespace": "lab", "uid": "other"},
    },
]


class World:
    """The API server, and `kubectl emugpu` beside it."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.now_s = NOW_S
        for name, gpus, lost in (
            ("w1", dict.fromkeys(range(4), V100), ""),
            ("w2", dict.fromkeys(range(2), A100), "XID 79"),
            ("w3", {0: V100, 5: A100}, ""),
            ("c1", {}, ""),
        ):
            self.api.put(NODE, node(name, gpus, lost=lost))
        gpus = [{"type": V100, "count": 4}]
        spec = {"nodeSelector": {"matchLabels": {"emugpu.dev/pool": "default"}}, "gpus": gpus}
        self.api.put(POOL, {"metadata": {"name": "default", "uid": "p", "creationTimestamp": coarse(0)}, "spec": spec})
        self.api.put(NODE, {"metadata": {"name": "control-plane"}, "status": {"allocatable": {"cpu": "8"}}})
        for resource, documents in ((POD, PODS), (EMUJOB, JOBS), (EVENT, EVENTS)):
            for document in documents:
                self.api.put(resource, json.loads(json.dumps(document)))
        bert, other = ("lab", "bert-1-0-abcde"), ("ops", "other-9-0-klmno")
        self.tell(
            "w1",
            metrics(
                {
                    ("w1", 0, V100): (0.974, 12, (bert,)),
                    ("w1", 1, V100): (0.0, 0, ()),
                    ("w1", 2, V100): (0.0, 0, ()),
                    ("w1", 3, V100): (0.5, 12, (bert,)),
                }
            ),
        )
        self.tell("w2", metrics({("w2", 0, A100): (0.0, 0, ()), ("w2", 1, A100): (0.25, 3, (other,))}))
        self.tell("c1", metrics({}))

    def tell(self, on: str, text: str) -> None:
        self.api.texts[f"/api/v1/namespaces/{SYSTEM}/pods/emugpu-node-{on}:9400/proxy/metrics"] = text

    def connect(self, args: argparse.Namespace) -> Cluster:
        return Cluster(self.api, args.namespace or "lab", lambda: round(self.now_s * 1e9))

    def run(self, *arguments: str) -> int:
        """The exit status; usage errors too."""
        try:
            return main(list(arguments), self.connect)
        except SystemExit as ended:
            return int(ended.code or 0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def printed(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """`printed("top", "-o", "json")`: exit status, stdout and stderr."""
    for name in ("COLUMNS", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = world.run(*arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
