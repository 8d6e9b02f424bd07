"""Reads and writes the ConfigMap that holds a scheduler's handover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emulator_runtime.domain.errors import EmuGpuError
from operators.kube.api import CONFIG_MAP, Api, ConflictError, NotThereError
from operators.scheduling.names import FIELD_MANAGER
from operators.scheduling.remember.handover import Handover, Written, from_document, to_document

_PAUSE_S = 0.1
"""Between two writes."""


class Keeper:
    """Reads and writes the ConfigMap of one scheduler, which nobody else writes while it holds its Lease."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._exists = False

    async def load(self, policy: str, module: str) -> Handover | None:
        """Raises what Api raises; None where there is nothing, or nothing that can be read."""
        try:
            document = await self._api.get(CONFIG_MAP, self._name, self._namespace)
        except NotThereError:
            return None
        self._exists = True
        return from_document(document, policy, module)

    async def save(self, handover: Handover, state: Written) -> str:
        """Why the policy's state was not kept; empty: it was. Raises what Api raises."""
        document, problem = to_document(self._namespace, self._name, handover, state)
        if not self._exists:
            try:
                await self._api.create(CONFIG_MAP, document, FIELD_MANAGER)
            except ConflictError:
                pass  # it is there already
            else:
                self._exists = True
                return problem
        await self._api.patch(CONFIG_MAP, self._name, document, FIELD_MANAGER)
        self._exists = True
        return problem


class Saver:
    """Saves handovers beside the work: the newest only, and one at a time. `may_act`: whether it is this program's turn still."""

    def __init__(self, keeper: Keeper, may_act: Callable[[], bool]) -> None:
        self._keeper, self._may_act = keeper, may_act
        self._unsaved: tuple[Handover, Written] | None = None
        self._saving: asyncio.Task[None] | None = None

    def save(self, handover: Handover, state: Written, saved: Callable[[str], None]) -> None:
        """Returns at once; `saved` gets what Keeper.save answers, or why it failed."""
        self._unsaved = handover, state
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save(saved))

    async def finish(self) -> None:
        """Returns when nothing is on its way any more."""
        if self._saving is not None:
            await self._saving

    async def _save(self, saved: Callable[[str], None]) -> None:
        while self._unsaved is not None and self._may_act():
            (handover, state), self._unsaved = self._unsaved, None
            try:
                saved(await self._keeper.save(handover, state))
            except EmuGpuError as error:
                saved(f"what this scheduler remembers can't be kept: {error}")
            await asyncio.sleep(_PAUSE_S)
