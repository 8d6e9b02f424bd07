"""What a scheduler hands over to its successor, so that a restart changes no decision: in a ConfigMap, beside the jobs' objects.

It has the policy's state, the service that jobs attained and when emulated time began. It is written after decisions, not with
them: what is lost when the program is killed is one decision's worth. What runs where is not in it; the jobs' own objects say it.
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
from operators.scheduling.remember.encoding import PlainError, decode, encode
from scheduler_sims.interface.view import JobView

_VERSION = 1
_LARGEST = 900_000
"""A ConfigMap holds 1 MiB (Kubernetes API, ConfigMap), this in base 64."""


@dataclass(frozen=True, slots=True)
class AttainedService:
    """GPU-seconds of a job's former runs, and since when it has had `gpus` now (None: it waits). Emulated seconds."""

    attained_gpu_s: float = 0.0
    since_s: float | None = None
    gpus: int = 0

    @classmethod
    def of(cls, view: JobView) -> AttainedService:
        gpus = view.allocation.gpus if view.allocation is not None else 0
        return cls(view.attained_gpu_s, view.running_since_s, gpus)

    def until(self, end_s: float) -> float:
        """GPU-seconds up to `end_s`, when its last run was over."""
        return self.attained_gpu_s + (0.0 if self.since_s is None else max(0.0, end_s - self.since_s) * self.gpus)


NEW = AttainedService()


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


def _packed(handover: Handover, state: str) -> str:
    attained = {uid: (each.attained_gpu_s, each.since_s, each.gpus) for uid, each in handover.attained.items()}
    content = {"version": _VERSION, "epoch_ns": handover.epoch_ns, "policy": handover.policy, "jobs": attained}
    text = f'{json.dumps(content, separators=(",", ":"))[:-1]},"state":{state}}}'
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
