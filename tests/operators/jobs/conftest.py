"""A cluster in miniature for the planner: what Kubernetes and a scheduler do to the objects that a plan asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.controllers.actions import DeleteJob, Plan, RecordEvent, SuspendJob, WriteStatus
from operators.fitting.offers import NodeOffer
from operators.jobs.creation_attempts import RefusedCreation
from operators.jobs.manifests import Images
from operators.jobs.plan import Action, Context, CreateJob, CreateService, Observed, ResizePod, plan
from operators.jobs.resizing import Refusal
from operators.kube.documents import Key
from operators.kube.timestamps import rfc3339
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob
from operators.objects.names import ALLOCATION, PREDICTED
from operators.objects.pod import ContainerRun, Pod, sizing_of
from operators.objects.scheduler_notes import ANNOTATION as SCHEDULING_PROBLEM
from operators.results.status import Outcome

START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
V100 = "Tesla_V100-PCIE-32GB"
OFFERS = tuple(NodeOffer(f"w{n}", 8000, 64 * GIB, ((V100, 32 * GIB),) * 4) for n in (1, 2))
PROFILES = ProfileTable.bundled()


@dataclass
class World:
    """One EmuJob with what there is of it. The methods are what others do; `settle` is the controller."""

    spec: dict[str, Any]
    offers: Sequence[NodeOffer] = OFFERS
    status: dict[str, Any] = field(default_factory=dict)
    job: BatchJob | None = None
    pods: list[Pod] = field(default_factory=list)
    has_service: bool = False
    outcome: Outcome | None = None
    now_ns: int = START_NS
    log: list[Action] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    deleting: bool = False
    predicted: str = ""
    scheduling_problem: str = ""
    log_connected: bool = True
    refusals: dict[str, Refusal] = field(default_factory=dict)
    refused_creation: RefusedCreation | None = None
    _made: int = 0

    @property
    def facts(self) -> EmuJob:
        notes = {PREDICTED: self.predicted, SCHEDULING_PROBLEM: self.scheduling_problem}
        return EmuJob(
            Key("lab", "j", "uid", "1"),
            rfc3339(START_NS),
            deleting=self.deleting,
            spec_json=self.spec,
            status_json=self.status,
            annotations={key: text for key, text in notes.items() if text},
        )

    def whole_plan(self) -> Plan:
        context = Context(self.offers, PROFILES, Images("emugpu:1"), self.now_ns, self.log_connected)
        observed = Observed(
            self.job, tuple(self.pods), self.has_service, self.outcome, self.refusals, self.refused_creation
        )
        return plan(self.facts, observed, context)

    def plan(self) -> tuple[Action, ...]:
        return self.whole_plan().actions

    def settle(self) -> list[Action]:
        """Carry out plans until there is nothing to do; a job that is deleted stays until `gone`."""
        done: list[Action] = []
        for _ in range(10):
            actions = self.plan()
            if not actions or (self.job is not None and self.job.deleting and not _writes(actions)):
                return done
            for action in actions:
                self._do(action)
            done += actions
            self.log += actions
        raise AssertionError(f"never at rest: {self.plan()}")

    def _do(self, action: Action) -> None:
        match action:
            case WriteStatus(_, status):
                self.status = dict(status)
            case CreateJob(_, document):
                assert self.job is None, "two Jobs"
                assert not [pod for pod in self.pods if not pod.over], "pods of two Jobs"
                self.documents.append(dict(document))
                self._made += 1
                suspended = document["spec"]["suspend"]
                notes = document["spec"]["template"]["metadata"]["annotations"]
                self.job = BatchJob(
                    Key("lab", "j", f"job-{self._made}", "1"),
                    owner="uid",
                    suspended=suspended,
                    annotations=notes,
                )
            case CreateService():
                self.has_service = True
            case SuspendJob(_, suspend):
                self.change(suspended=suspend)
            case DeleteJob():
                self.change(deleting=True)
            case ResizePod(key, resources):
                containers = {"containers": [{"name": "train", "resources": dict(resources)}]}
                (index,) = [index for index, pod in enumerate(self.pods) if pod.key == key]
                self.pods[index] = replace(self.pods[index], sizing=sizing_of({"spec": containers}))
            case RecordEvent():
                pass

    def change(self, **members: Any) -> None:
        assert self.job is not None
        self.job = replace(self.job, **members)

    def later(self, seconds: float = 1.0) -> None:
        self.now_ns += round(seconds * 1e9)

    def allocate(self, text: str = '{"configuration":"default","nodes":["w1"],"cpu_milli":4000}') -> None:
        """What a job-level scheduler does with actuator `jobs`."""
        assert self.job is not None
        self.change(suspended=False, annotations={**self.job.annotations, ALLOCATION: text})

    def kubernetes(self) -> None:
        """The Job controller and the kubelets, until nothing is to do: pods come, run, and go when the Job is suspended."""
        if self.job is None:
            return
        owner = self.job.key.uid
        if self.job.deleting:
            self.pods = [pod for pod in self.pods if pod.owner != owner]
            self.job = None
            return
        if self.job.suspended:
            self.pods = [pod for pod in self.pods if pod.over]
            self.change(stopped=True, active=0)
            return
        if self.job.stopped or not self.job.started:
            self.change(stopped=False, started=rfc3339(self.now_ns))
        wanted = self.spec.get("nodes", 1)
        for _ in range(wanted - sum(not pod.over for pod in self.pods)):
            self._made += 1
            key = Key("lab", f"j-{self._made}", f"pod-{self._made}", "1")
            sizing = sizing_of(self.documents[-1]["spec"]["template"])
            self.pods.append(
                Pod(key, "j", owner, created=rfc3339(self.now_ns), sizing=sizing, annotations=self.job.annotations)
            )
        self.change(active=wanted)
        started = ContainerRun("train", rfc3339(self.now_ns))
        for index, pod in enumerate(self.pods):
            if not pod.over:
                self.pods[index] = replace(pod, node=f"w{index + 1}", phase="Running", runs=(started,))

    def end_pod(self, phase: str = "Failed", *, rejected: bool = False) -> None:
        live = [index for index, pod in enumerate(self.pods) if not pod.over]
        if live and self.job is not None:
            self.pods[live[0]] = replace(self.pods[live[0]], phase=phase, rejected=rejected)
            self.change(failed=self.job.failed + (phase == "Failed"), active=max(0, self.job.active - 1))

    def complete(self) -> None:
        self.pods = [replace(pod, phase=pod.phase if pod.over else "Succeeded") for pod in self.pods]
        self.change(complete=True, completed=rfc3339(self.now_ns), active=0, seen_ns=self.now_ns)

    def condition(self, kind: str) -> tuple[str, str]:
        (found,) = [c for c in self.status["conditions"] if c["type"] == kind]
        return found["status"], found["reason"]

    def told(self) -> list[str]:
        return [action.event.reason for action in self.log if isinstance(action, RecordEvent)]


def _writes(actions: Sequence[Action]) -> bool:
    return any(isinstance(action, WriteStatus) for action in actions)


WORK = {"steps": 100, "model": "resnet50", "batchSize": 64}
BY_JOBS = {"scheduler": {"actuator": "jobs", "name": "s"}}


@pytest.fixture
def world() -> type[World]:
    return World
