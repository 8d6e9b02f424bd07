"""The controller's life: follow experiments, their runners and the namespaces of their runs, and plan all anew after each change.

There are few experiments, and whose turn it is depends on all of them, so all are looked at together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from emulator_runtime.domain.errors import EmuGpuError, InputError
from operators.controllers.leader_election import LeadershipLostError
from operators.experiments.controller.metrics import ExperimentMetrics
from operators.experiments.controller.names import UID_LABEL
from operators.experiments.controller.objects import (
    ExperimentFacts,
    RunNamespace,
    RunnerFacts,
    experiment_facts,
    run_namespace_of,
    runner_facts,
)
from operators.experiments.controller.plan import Action, orphans, plan
from operators.experiments.controller.runner_job import RunnerSettings
from operators.experiments.controller.status import Seen
from operators.experiments.controller.turns import FINAL, turn
from operators.experiments.controller.writer import write
from operators.kube.api import EXPERIMENT, JOB, NAMESPACE, Api, ConflictError, NotThereError
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store
from operators.objects.experiment import parse_spec

_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the controller is given: where and as what runners run, and whether it may act now."""

    settings: RunnerSettings
    wall_ns: Callable[[], int]
    may_act: Callable[[], bool] = lambda: True


class Controller:
    """`run` never ends by itself; it is cancelled."""

    def __init__(
        self, api: Api, metrics: ExperimentMetrics, surroundings: Surroundings, pauses: Pauses | None = None
    ) -> None:
        self._api, self._metrics, self._around = api, metrics, surroundings
        self._pauses = pauses or Pauses()
        self._experiments: Store[ExperimentFacts] = Store(experiment_facts)
        self._runners: Store[RunnerFacts] = Store(runner_facts)
        self._namespaces: Store[RunNamespace] = Store(run_namespace_of)
        here = {"labels": UID_LABEL, "namespace": surroundings.settings.namespace}
        labelled = {"labels": UID_LABEL}
        self._followed = (
            Followed(EXPERIMENT, self._experiments),
            Followed(JOB, self._runners, here),
            Followed(NAMESPACE, self._namespaces, labelled),
        )
        self._moved = asyncio.Event()
        self._failures = 0
        self.problem = ""

    async def run(self) -> None:
        """Raises LeadershipLostError (in a group) when it may not act any more."""
        async with asyncio.TaskGroup() as group:
            for followed in self._followed:
                group.create_task(
                    follow(self._api, followed, self._pauses, self._moved.set, self._metrics.failed_watch)
                )
            group.create_task(self._work())

    async def _work(self) -> None:
        again_s = _LONGEST_WAIT_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._moved.wait()
            await asyncio.sleep(self._pauses.settle)
            self._moved.clear()
            if not all(followed.store.synced for followed in self._followed):
                continue
            with self._metrics.reconciles.time():
                again_s = await self._look()

    async def _look(self) -> float:
        """Do all that is to be done now; when to look again, in seconds."""
        experiments = self._experiments.values()
        self._metrics.seen(experiments)
        runners = {runner.owner: runner for runner in self._runners.values()}
        namespaces: dict[str, list[RunNamespace]] = {}
        for namespace in self._namespaces.values():
            namespaces.setdefault(namespace.owner, []).append(namespace)
        ready = {facts.key.uid for facts in experiments if _is_ready(facts)}
        chosen = turn(experiments, runners, namespaces, ready)
        self.problem, again_s = "", _LONGEST_WAIT_S
        left = orphans([facts.key.uid for facts in experiments], self._runners.values(), self._namespaces.values())
        plans: list[tuple[list[Action], float | None]] = [(left, None)]
        now_ns = self._around.wall_ns()
        for facts in experiments:
            uid = facts.key.uid
            before = _before(facts, experiments, ready)
            seen = Seen(runners.get(uid), namespaces.get(uid, ()), uid == chosen, before)
            found = plan(facts, seen, self._around.settings, now_ns)
            plans.append(([*found.actions], found.again_s))
        for actions, wanted_s in plans:
            error = await self._carry_out(actions)
            if error is not None:
                self.problem = str(error)
            again_s = min(again_s, wanted_s if wanted_s is not None else again_s)
        self._failures = self._failures + 1 if self.problem else 0
        return min(again_s, self._pauses.after(self._failures)) if self._failures else again_s

    async def _carry_out(self, actions: list[Action]) -> EmuGpuError | None:
        """Each action only after the one before came through: an event tells what is written already."""
        for action in actions:
            if not self._around.may_act():
                raise LeadershipLostError("another replica may act now; ending")
            try:
                await write(self._api, action, self._around.wall_ns())
            except (ConflictError, NotThereError):
                return None  # what was planned is old; the watch brings what it is now
            except EmuGpuError as error:
                self._metrics.failed(type(action).__name__, error)
                return error
            self._metrics.writes.labels(type(action).__name__).inc()
        return None


def _is_ready(facts: ExperimentFacts) -> bool:
    """Whether it wants to run."""
    try:
        return not parse_spec(facts.spec).suspend and not facts.deleting and facts.phase not in FINAL
    except InputError:
        return False


def _before(facts: ExperimentFacts, all_of_them: list[ExperimentFacts], ready: set[str]) -> int:
    """How many that want to run came earlier."""
    mine = facts.created, facts.key.namespace, facts.key.name
    others = [e for e in all_of_them if e.key.uid in ready and e.key.uid != facts.key.uid]
    return sum((e.created, e.key.namespace, e.key.name) < mine for e in others)
