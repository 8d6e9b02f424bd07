"""Reads and writes the ConfigMap that holds a scheduler's handover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator_runtime.domain.errors import EmuGpuError
from operators.kube.api import CONFIG_MAP, Api, ConflictError, NotThereError
from operators.scheduling.names import FIELD_MANAGER
from operators.scheduling.remember.handover import EncodedState, Handover, from_document, to_document

_PAUSE_S = 0.1
"""Pause between two writes."""


class Keeper:
    """Only the scheduler that holds the Lease writes its ConfigMap."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._exists = False

    async def load(self, policy: str, module: str) -> Handover | None:
        """The stored handover; None if there is none or it can't be read. Raises what Api raises."""
        try:
            document = await self._api.get(CONFIG_MAP, self._name, self._namespace)
        except NotThereError:
            return None
        self._exists = True
        return from_document(document, policy, module)

    async def save(self, handover: Handover, state: EncodedState) -> str:
        """Returns why the policy's state was not stored; empty: it was. Raises what Api raises."""
        document, problem = to_document(self._namespace, self._name, handover, state)
        if not self._exists:
            try:
                await self._api.create(CONFIG_MAP, document, FIELD_MANAGER)
            except ConflictError:
                pass  # another process has created it
            else:
                self._exists = True
                return problem
        await self._api.patch(CONFIG_MAP, self._name, document, FIELD_MANAGER)
        self._exists = True
        return problem


class Saver:
    """Saves handovers in the background: the newest only, one at a time, while `may_act` is true."""

    def __init__(self, keeper: Keeper, may_act: Callable[[], bool]) -> None:
        self._keeper, self._may_act = keeper, may_act
        self._unsaved: tuple[Handover, EncodedState] | None = None
        self._saving: asyncio.Task[None] | None = None

    def save(self, handover: Handover, state: EncodedState, saved: Callable[[str], None]) -> None:
        """Returns at once; `saved` gets the result of Keeper.save, or why it failed."""
        self._unsaved = handover, state
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save(saved))

    async def finish(self) -> None:
        """Returns when no write is in progress."""
        if self._saving is not None:
            await self._saving

    async def _save(self, saved: Callable[[str], None]) -> None:
        while self._unsaved is not None and self._may_act():
            (handover, state), self._unsaved = self._unsaved, None
            try:
                saved(await self._keeper.save(handover, state))
            except EmuGpuError as error:
                saved(f"the scheduler's state can't be stored: {error}")
            await asyncio.sleep(_PAUSE_S)
