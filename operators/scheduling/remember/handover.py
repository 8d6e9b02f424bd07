"""What a scheduler hands over to the next process, so that a restart changes no decision: a ConfigMap.

It holds the policy's state, the jobs' attained service and the begin of emulated time. It is written after a decision, not with
it, so a killed process loses the state of one decision at most. Allocations are not in it: the jobs' own objects have them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.kube.api import Json
from operators.kube.documents import object_at, text_at
from operators.scheduling.names import FIELD_MANAGER
from operators.scheduling.remember.encoding import EncodingError, decode, encode
from scheduler_sims.interface.view import JobView

_VERSION = 1
_LARGEST = 900_000
"""Bytes in base 64. A ConfigMap holds 1 MiB (Kubernetes API, ConfigMap)."""


@dataclass(frozen=True, slots=True)
class AttainedService:
    """GPU-seconds of a job's earlier runs; `since_s`: when it got its present `gpus` (None: it waits). Emulated seconds."""

    attained_gpu_s: float = 0.0
    since_s: float | None = None
    gpus: int = 0

    @classmethod
    def of(cls, view: JobView) -> AttainedService:
        gpus = view.allocation.gpus if view.allocation is not None else 0
        return cls(view.attained_gpu_s, view.running_since_s, gpus)

    def until(self, end_s: float) -> float:
        """GPU-seconds up to `end_s`, the end of the last run. 10 GPU-s, 2 GPUs since 5 s, until 8 s: 10 + 2 * 3 = 16 GPU-s."""
        return self.attained_gpu_s + (0.0 if self.since_s is None else max(0.0, end_s - self.since_s) * self.gpus)


NEW = AttainedService()


@dataclass(frozen=True)
class Handover:
    """`policy`: the text of --policy that `state` belongs to. `problem`: why the stored state can't be used."""

    epoch_ns: int
    policy: str
    state: Any = None
    attained: Mapping[str, AttainedService] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EncodedState:
    """A policy's state as JSON, for other threads than the policy's, which may change the state. `problem`: why it is missing."""

    text: str = "null"
    problem: str = ""

    @classmethod
    def of(cls, handover: Handover) -> EncodedState:
        """Call it in the policy's thread."""
        try:
            return cls(json.dumps(encode(handover.state), separators=(",", ":")))
        except EncodingError as error:
            return cls(problem=f"the state of policy {handover.policy} is lost at a restart: {error}")


def to_document(namespace: str, name: str, handover: Handover, state: EncodedState) -> tuple[Json, str]:
    """The ConfigMap, and why it lacks the policy's state (empty: it doesn't)."""
    problem, data = state.problem, _packed(handover, state.text)
    if len(data) > _LARGEST and not problem:
        problem = f"the state of policy {handover.policy} is lost at a restart: it is too large for a ConfigMap"
        data = _packed(handover, EncodedState().text)
    document: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}},
        "data": {"policy": handover.policy, "jobs": str(len(handover.attained))},
        "binaryData": {"memory": data},
    }
    return document, problem


def from_document(document: Json, policy: str, module: str) -> Handover | None:
    """The handover in a ConfigMap; None if it can't be read. `module`: the policy's own, whose types its state may contain."""
    try:
        data = base64.b64decode(text_at(object_at(document, "binaryData"), "memory"), validate=True)
        content = json.loads(zlib.decompress(data))
        if not isinstance(content, dict) or content.get("version") != _VERSION:
            return None
        attained = {
            uid: AttainedService(float(a), None if s is None else float(s), int(g))
            for uid, (a, s, g) in content["jobs"].items()
        }
        stored = Handover(int(content["epoch_ns"]), str(content["policy"]), None, attained)
    except (ValueError, TypeError, KeyError, zlib.error):
        return None
    if stored.policy != policy:
        problem = f"the state of policy {stored.policy} is discarded: the policy is {policy} now"
        return Handover(stored.epoch_ns, policy, None, attained, problem)
    try:
        return Handover(stored.epoch_ns, policy, decode(content["state"], module), attained)
    except (EncodingError, InputError) as error:
        return Handover(
            stored.epoch_ns, policy, None, attained, f"the stored state of policy {policy} can't be read: {error}"
        )


def _packed(handover: Handover, state: str) -> str:
    attained = {uid: (each.attained_gpu_s, each.since_s, each.gpus) for uid, each in handover.attained.items()}
    content = {"version": _VERSION, "epoch_ns": handover.epoch_ns, "policy": handover.policy, "jobs": attained}
    text = f'{json.dumps(content, separators=(",", ":"))[:-1]},"state":{state}}}'
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
