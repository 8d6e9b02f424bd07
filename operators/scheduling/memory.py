"""What a scheduler keeps for its successor, in a ConfigMap: the policy's memory, the jobs' past, when emulated time began.

The ConfigMap is written after decisions, not with them: what is lost when the program is killed is one decision's worth of
memory. What runs where is not kept here; the jobs' own objects say it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.documents import object_at, text_at
from operators.kube import CONFIG_MAP, Api, ConflictError, Json, NotThereError
from operators.scheduling.names import FIELD_MANAGER
from operators.scheduling.past import Past
from operators.scheduling.plain import PlainError, decode, encode

_VERSION = 1
_LARGEST = 900_000
"""A ConfigMap holds 1 MiB (Kubernetes API, ConfigMap), this in base 64."""


@dataclass(frozen=True)
class Memory:
    """`policy`: the text of --policy that `state` belongs to. `problem`: why the state is not the policy's."""

    epoch_ns: int
    policy: str
    state: Any = None
    pasts: Mapping[str, Past] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A memory's state as JSON, for a thread other than the policy's, which goes on changing it. `problem`: why it is missing."""

    text: str = "null"
    problem: str = ""

    @classmethod
    def of(cls, memory: Memory) -> Written:
        """Must be called by the policy's thread."""
        try:
            return cls(json.dumps(encode(memory.state), separators=(",", ":")))
        except PlainError as error:
            return cls(problem=f"what policy {memory.policy} remembers is not kept over a restart: {error}")


def to_document(namespace: str, name: str, memory: Memory, state: Written) -> tuple[Json, str]:
    """The ConfigMap, and why the policy's state isn't in it (empty: it is)."""
    problem, data = state.problem, _packed(memory, state.text)
    if len(data) > _LARGEST and not problem:
        problem = f"what policy {memory.policy} remembers is too large to be kept over a restart"
        data = _packed(memory, Written().text)
    document: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}},
        "data": {"policy": memory.policy, "jobs": str(len(memory.pasts))},
        "binaryData": {"memory": data},
    }
    return document, problem


def from_document(document: Json, policy: str, module: str) -> Memory | None:
    """What is kept there; None where it can't be read. `module`: the policy's own, whose types may be in its state."""
    try:
        data = base64.b64decode(text_at(object_at(document, "binaryData"), "memory"), validate=True)
        content = json.loads(zlib.decompress(data))
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            return None
        pasts = {
            uid: Past(float(a), None if s is None else float(s), int(g)) for uid, (a, s, g) in content["jobs"].items()
        }
        kept = Memory(int(content["epoch_ns"]), str(content["policy"]), None, pasts)
    except (ValueError, TypeError, KeyError, zlib.error):
        return None
    if kept.policy != policy:
        problem = f"what policy {kept.policy} remembered is dropped: the policy is {policy} now"
        return Memory(kept.epoch_ns, policy, None, pasts, problem)
    try:
        return Memory(kept.epoch_ns, policy, decode(content["state"], module), pasts)
    except (PlainError, InputError) as error:
        return Memory(kept.epoch_ns, policy, None, pasts, f"what policy {policy} remembered can't be read: {error}")


class Keeper:
    """Reads and writes the ConfigMap of one scheduler, which nobody else writes while it holds its Lease."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._exists = False

    async def load(self, policy: str, module: str) -> Memory | None:
        """Raises what Api raises; None where there is nothing, or nothing that can be read."""
        try:
            document = await self._api.get(CONFIG_MAP, self._name, self._namespace)
        except NotThereError:
            return None
        self._exists = True
        return from_document(document, policy, module)

    async def save(self, memory: Memory, state: Written) -> str:
        """Why the policy's state was not kept; empty: it was. Raises what Api raises."""
        document, problem = to_document(self._namespace, self._name, memory, state)
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


def _packed(memory: Memory, state: str) -> str:
    pasts = {uid: (past.attained_gpu_s, past.since_s, past.gpus) for uid, past in memory.pasts.items()}
    content = {"version": _VERSION, "epoch_ns": memory.epoch_ns, "policy": memory.policy, "jobs": pasts}
    text = f'{json.dumps(content, separators=(",", ":"))[:-1]},"state":{state}}}'
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
