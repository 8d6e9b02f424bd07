"""Tells the experiment how its runner gets on, from a thread of its own: a run mustn't wait for an annotation.

What is told more often than twice in two seconds is told once; what fails is told again, newer by then.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.experiments.controller.names import PROGRESS, RUNNER_MANAGER
from operators.experiments.controller.progress import Told, told_text
from operators.experiments.executor import Connection
from operators.experiments.runner.settings import Settings
from operators.kube.api import EXPERIMENT
from operators.kube.timestamps import rfc3339

EVERY_S = 2.0
_LAST_WORDS_S = 60.0


class Teller:
    """Use as a context manager; its end waits for what was told last. `wall_ns` says what time it is."""

    def __init__(self, settings: Settings, connect: Callable[[], Connection], wall_ns: Callable[[], int]) -> None:
        self._settings, self._connect, self._wall_ns = settings, connect, wall_ns
        self._told, self._written = Told(), Told()
        self._news = threading.Condition()
        self._ends = self._gives_up = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="telling", daemon=True)

    def __enter__(self) -> Teller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._news:
            self._ends = True
            self._news.notify_all()
        self._thread.join(_LAST_WORDS_S)
        self._gives_up = True

    @property
    def told(self) -> Told:
        """What was told last."""
        return self._told

    def tell(self, **changes: Any) -> None:
        """Returns at once."""
        with self._news:
            self._told = replace(self._told, **changes)
            self._news.notify_all()

    def flush(self) -> None:
        """Waits until the experiment knows. Raises ClusterError where it doesn't come to."""
        with self._news:
            wanted = self._told
            if not self._news.wait_for(lambda: self._written == wanted, _LAST_WORDS_S):
                raise ClusterError(f"the experiment could not be told for {_LAST_WORDS_S:g} s; see the lines above")

    async def _work(self) -> None:
        api = self._connect()
        try:
            while True:
                told, ends = await asyncio.to_thread(self._next)
                if self._gives_up:
                    return
                if told is not None:
                    await self._write(api, told)
                if ends and self._written == self._told:
                    return
                if not ends:
                    await asyncio.to_thread(self._rest)
                elif told is not None and self._written != told:
                    await asyncio.sleep(EVERY_S)  # it failed: patience until whoever waits for it has none
        finally:
            await api.close()

    def _next(self) -> tuple[Told | None, bool]:
        """What is to be written, once there is something."""
        with self._news:
            self._news.wait_for(lambda: self._ends or self._told != self._written)
            return (self._told if self._told != self._written else None), self._ends

    def _rest(self) -> None:
        """Unless it is something that ends a stage: that is told at once."""
        with self._news:
            known = self._written
            self._news.wait_for(lambda: self._ends or _is_urgent(known, self._told), EVERY_S)

    async def _write(self, api: Connection, told: Told) -> None:
        settings = self._settings
        notes = {PROGRESS: told_text(replace(told, at=rfc3339(self._wall_ns())))}
        metadata = {"namespace": settings.namespace, "uid": settings.uid, "annotations": notes}
        try:
            await api.patch(EXPERIMENT, settings.name, {"metadata": metadata}, RUNNER_MANAGER)
        except EmuGpuError as error:
            print(f"experiment: {error}", file=sys.stderr, flush=True)
            return
        with self._news:
            self._written = told
            self._news.notify_all()


def _is_urgent(known: Told, told: Told) -> bool:
    same = ("stage", "column", "repeat", "done", "problem")
    return any(getattr(known, name) != getattr(told, name) for name in same)
