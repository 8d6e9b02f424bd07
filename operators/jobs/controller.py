"""The controller's life: follow six kinds of objects, plan each EmuJob anew after every change, write what is planned.

Level-triggered: what is done depends on what is there, not on what happened. Every write has a precondition (a uid, a version,
or that nothing of this name is there), so what was planned on old news fails and is planned again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.profiles.table import ProfileTable
from operators.following import Followed, Pauses, follow
from operators.jobs.manifests import Images
from operators.jobs.metrics import JobMetrics
from operators.jobs.names import JOB_LABEL
from operators.jobs.objects import (
    EmuJobFacts,
    JobFacts,
    PodFacts,
    ServiceFacts,
    emujob_facts,
    job_facts,
    pod_facts,
    service_facts,
)
from operators.jobs.observer import Scene
from operators.jobs.offers import offers_of
from operators.jobs.plan import Action, Around, CreateJob, CreateService, Mine, SuspendJob, WriteStatus, plan
from operators.jobs.writer import write
from operators.kube import EMUJOB, JOB, NODE, POD, POOL, SERVICE, Api, ConflictError, NotThereError, everywhere
from operators.leader import LeadershipLostError
from operators.pools.objects import NodeFacts, PoolFacts, node_facts, pool_facts
from operators.results.status import Outcome
from operators.store import Store

_LONGEST_WAIT_S = 60.0
"""Even where nothing changes all EmuJobs are looked at so often: outcomes may come without any object's change."""


def no_outcomes(_uid: str) -> Outcome | None:
    """No source beside Kubernetes."""
    return None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the controller is given: the images of pods, profiles, if it may act now, what came of a job by its EmuJob's uid,
    and who is shown all that it sees. The last two must not block."""

    images: Images
    profiles: ProfileTable
    wall_ns: Callable[[], int]
    may_act: Callable[[], bool] = lambda: True
    outcomes: Callable[[str], Outcome | None] = no_outcomes
    observe: Callable[[Scene], None] = lambda _: None


class Controller:
    """`run` never ends by itself; it is cancelled."""

    def __init__(self, api: Api, metrics: JobMetrics, surroundings: Surroundings, pauses: Pauses | None = None) -> None:
        self._api, self._metrics, self._around = api, metrics, surroundings
        self._pauses = pauses or Pauses()
        wall_ns = surroundings.wall_ns
        self._emujobs: Store[EmuJobFacts] = Store(lambda document: emujob_facts(document, wall_ns()))
        self._jobs: Store[JobFacts] = Store(lambda document: job_facts(document, wall_ns()))
        self._pods: Store[PodFacts] = Store(lambda document: pod_facts(document, wall_ns()))
        self._services: Store[ServiceFacts] = Store(service_facts)
        self._pools: Store[PoolFacts] = Store(pool_facts)
        self._nodes: Store[NodeFacts] = Store(node_facts)
        self._followed = (
            Followed(EMUJOB, self._emujobs, everywhere()),
            Followed(JOB, self._jobs, everywhere()),
            Followed(POD, self._pods, everywhere()),  # who asks for emulated GPUs bears no label
            Followed(SERVICE, self._services, everywhere(JOB_LABEL)),
            Followed(POOL, self._pools),
            Followed(NODE, self._nodes),
        )
        self._changed = asyncio.Event()
        self._problem = "nothing was listed yet"
        self.managers: Mapping[str, str] = {}
        """Node -> address of its sharing manager."""

    @property
    def problem(self) -> str:
        """Why Jobs may not be as the EmuJobs say; empty where the last reconciliation came through."""
        return self._problem

    def look_again(self) -> None:
        """Something that isn't in the API server has changed, such as an outcome."""
        self._changed.set()

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        async with asyncio.TaskGroup() as group:
            for followed in self._followed:
                failed = self._failed_watch
                group.create_task(follow(self._api, followed, self._pauses, self._changed.set, failed))
            group.create_task(self._work())

    async def _work(self) -> None:
        failures, wait_s = 0, _LONGEST_WAIT_S
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(self._pauses.settle)
            self._changed.clear()
            wait_s = _LONGEST_WAIT_S
            if not all(followed.store.synced for followed in self._followed):
                continue
            with self._metrics.reconciles.time():
                errors, wait_s = await self._reconcile()
            self._problem = str(errors[0]) if errors else ""
            failures = failures + 1 if errors else 0
            if failures:
                wait_s = min(wait_s, self._pauses.after(failures))

    async def _reconcile(self) -> tuple[list[EmuGpuError], float]:
        """Do all that is to be done, and when to look again. One EmuJob's failure doesn't hold up the others."""
        around = Around(
            offers_of(self._pools.values(), self._nodes.values()),
            self._around.profiles,
            self._around.images,
            self._around.wall_ns(),
        )
        pods: defaultdict[tuple[str, str], list[PodFacts]] = defaultdict(list)
        self._around.observe(self._scene(around))
        self.managers = {pod.node: pod.manager for pod in self._pods.values() if pod.manager and pod.node}
        for pod in self._pods.values():
            if pod.job:
                pods[pod.key.namespace, pod.job].append(pod)
        errors: list[EmuGpuError] = []
        wait_s = _LONGEST_WAIT_S
        for facts in self._emujobs.values():
            name = str(facts.key)
            mine = Mine(
                self._jobs.get(name),
                tuple(pods[facts.key.namespace, facts.key.name]),
                self._services.get(name) is not None,
                self._around.outcomes(facts.key.uid),
            )
            found = plan(facts, mine, around)
            wait_s = wait_s if found.again_s is None else min(wait_s, max(found.again_s, 0.01))
            error = await self._carry_out(found.actions)
            errors += [error] if error is not None else []
        self._metrics.phases(str(facts.status.get("phase", "Pending")) for facts in self._emujobs.values())
        return errors, wait_s

    def _scene(self, around: Around) -> Scene:
        emujobs, jobs, pods = self._emujobs.values(), self._jobs.values(), self._pods.values()
        return Scene(emujobs, jobs, pods, around.offers, around.now_ns)

    async def _carry_out(self, actions: tuple[Action, ...]) -> EmuGpuError | None:
        """Each action only after the one before came through: an event tells what is written already."""
        for action in actions:
            if not self._around.may_act():
                raise LeadershipLostError("another replica may act now; ending")
            try:
                document = await write(self._api, action, self._around.wall_ns())
            except (ConflictError, NotThereError) as error:
                if isinstance(action, CreateService):  # somebody else's, without our label: nothing will tell
                    self._failed(type(action).__name__, error)
                    return error
                return None  # what was planned is old; the watch brings what it is now
            except EmuGpuError as error:
                self._failed(type(action).__name__, error)
                return error
            self._metrics.writes.labels(type(action).__name__).inc()
            store = self._store_of(action)
            if document is not None and store is not None and store.update("MODIFIED", document):
                # The watch's echo will be no news any more; what was made shows in the status.
                self._changed.set()
        return None

    def _store_of(self, action: Action) -> Store[Any] | None:
        match action:
            case WriteStatus():
                return self._emujobs
            case CreateJob() | SuspendJob():
                return self._jobs
            case CreateService():
                return self._services
            case _:
                return None

    def _failed_watch(self, error: EmuGpuError) -> None:
        self._failed("watch", error)

    def _failed(self, doing: str, error: EmuGpuError) -> None:
        self._metrics.failures.labels(doing).inc()
        print(f"jobs: {error}", file=sys.stderr, flush=True)
