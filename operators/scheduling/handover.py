"""What a scheduler hands over to its successor, so that a restart changes no decision: in a ConfigMap, beside the jobs' objects.

It has the policy's state, the service that jobs attained and when emulated time began. It is written after decisions, not with
them: what is lost when the program is killed is one decision's worth. What runs where is not in it; the jobs' own objects say it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from operators.kube.api import CONFIG_MAP, Api, ConflictError, Json, NotThereError
from operators.kube.documents import object_at, text_at
from operators.scheduling.attained import AttainedService
from operators.scheduling.names import FIELD_MANAGER
from operators.scheduling.plain import PlainError, decode, encode

_VERSION = 1
_LARGEST = 900_000
"""A ConfigMap holds 1 MiB (Kubernetes API, ConfigMap), this in base 64."""
_PAUSE_S = 0.1
"""Between two writes."""


@dataclass(frozen=True)
class Handover:
    """`policy`: the text of --policy that `state` belongs to. `problem`: why the state is not the policy's."""

    epoch_ns: int
    policy: str
    state: Any = None
    attained: Mapping[str, AttainedService] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A policy's state as JSON, for a thread other than the policy's, which goes on changing it. `problem`: why it is missing."""

    text: str = "null"
    problem: str = ""

    @classmethod
    def of(cls, handover: Handover) -> Written:
        """Must be called by the policy's thread."""
        try:
            return cls(json.dumps(encode(handover.state), separators=(",", ":")))
        except PlainError as error:
            return cls(problem=f"what policy {handover.policy} remembers is not kept over a restart: {error}")


def to_document(namespace: str, name: str, handover: Handover, state: Written) -> tuple[Json, str]:
    """The ConfigMap, and why the policy's state isn't in it (empty: it is)."""
    problem, data = state.problem, _packed(handover, state.text)
    if len(data) > _LARGEST and not problem:
        problem = f"what policy {handover.policy} remembers is too large to be kept over a restart"
        data = _packed(handover, Written().text)
    document: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}},
        "data": {"policy": handover.policy, "jobs": str(len(handover.attained))},
        "binaryData": {"memory": data},
    }
    return document, problem


def from_document(document: Json, policy: str, module: str) -> Handover | None:
    """What is kept there; None where it can't be read. `module`: the policy's own, whose types may be in its state."""
    try:
        data = base64.b64decode(text_at(object_at(document, "binaryData"), "memory"), validate=True)
        content = json.loads(zlib.decompress(data))
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            return None
        attained = {
            uid: AttainedService(float(a), None if s is None else float(s), int(g))
            for uid, (a, s, g) in content["jobs"].items()
        }
        kept = Handover(int(content["epoch_ns"]), str(content["policy"]), None, attained)
    except (ValueError, TypeError, KeyError, zlib.error):
        return None
    if kept.policy != policy:
        problem = f"what policy {kept.policy} remembered is dropped: the policy is {policy} now"
        return Handover(kept.epoch_ns, policy, None, attained, problem)
    try:
        return Handover(kept.epoch_ns, policy, decode(content["state"], module), attained)
    except (PlainError, InputError) as error:
        return Handover(
            kept.epoch_ns, policy, None, attained, f"what policy {policy} remembered can't be read: {error}"
        )


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


def _packed(handover: Handover, state: str) -> str:
    attained = {uid: (each.attained_gpu_s, each.since_s, each.gpus) for uid, each in handover.attained.items()}
    content = {"version": _VERSION, "epoch_ns": handover.epoch_ns, "policy": handover.policy, "jobs": attained}
    text = f'{json.dumps(content, separators=(",", ":"))[:-1]},"state":{state}}}'
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
