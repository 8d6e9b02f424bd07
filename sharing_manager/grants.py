"""A grant: the right of a job to a set of devices of this node, named by a token that only its holder keeps.

Two sorts: the node's owner (a local cluster) grants devices to a job by name, for one run; the device plugin mints a token
per Allocate, whose pod is known when it attaches, and which outlives runs and container restarts.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import StrEnum

from emulator_runtime.domain.lease import Lease
from emulator_runtime.node.grant_files import GrantRecord
from emulator_runtime.node.inventory import split_device_id
from emulator_runtime.node.layout import HOST_RESOURCE
from sharing_manager.identity import PodIdentity


class GrantState(StrEnum):
    """The life of a grant. `released`, `finished` and `failed` end a run, and the grant of an owner with it; `fenced` and
    `gone` end a pod's grant. Only `granted` and `attached` ones hold anything."""

    GRANTED = "granted"
    ATTACHED = "attached"
    RELEASED = "released"
    FINISHED = "finished"
    FAILED = "failed"
    FENCED = "fenced"
    GONE = "gone"


@dataclass(slots=True)
class Grant:
    """What was promised to a job, and how far the job has come. Times are emulated nanoseconds.

    `digest`: SHA-256 of the token. `devices`: ids, which may carry a replica (`UUID::3`). `places`: ids of places on the node,
    of a container that needs no device. `floor_ns`: no lease starts before
    it (the grant's own time, then the end of the last lease). `last_step` and `last_lease` make a repeated request give
    the same answer. `nonce`: what the token of an owner's grant is derived from. `minted_ns`: wall clock of a pod's
    Allocate, 0 for an owner's. `pod`: to whom it is bound (None: a token is all that is known).
    """

    digest: str
    job_id: str
    devices: tuple[str, ...]
    steps_done: int
    floor_ns: int
    state: GrantState = GrantState.GRANTED
    stopping: bool = False
    last_step: int = -1
    last_lease: Lease | None = None
    leased_ns: int = 0
    logged_steps: int = 0
    """Steps that the event log knows of; the difference is written as one range."""
    nonce: str = ""
    minted_ns: int = 0
    resource: str = ""
    places: tuple[str, ...] = ()
    bound: bool = True
    pod: PodIdentity | None = None
    pid: int = 0
    """Of the process that is connected, as the manager's PID namespace numbers it; 0: none, or not to be seen."""
    told_full: bool = False
    """This run has been told of in the log as out of memory."""
    uuids: tuple[str, ...] = field(init=False)
    """The physical devices; a device of which it has two replicas counts once."""
    holder: str = field(init=False)
    """Its name in the books of the devices, which no other grant has."""

    def __post_init__(self) -> None:
        self.uuids = tuple(dict.fromkeys(split_device_id(device)[0] for device in self.devices))
        self.bind(self.job_id, self.pod)

    @classmethod
    def of_record(cls, record: GrantRecord) -> Grant:
        """What the device plugin minted, before anybody has shown it: nobody's, and in no book yet."""
        devices, places = devices_and_places(record.resource, record.device_ids)
        return cls(
            digest=record.token_digest,
            job_id="",
            devices=devices,
            places=places,
            steps_done=0,
            floor_ns=0,
            minted_ns=record.minted_ns,
            resource=record.resource,
            bound=False,
        )

    def bind(self, job_id: str, pod: PodIdentity | None) -> None:
        """From now on this is the grant of that job, in that pod."""
        self.job_id, self.pod = job_id, pod
        self.holder = job_id if self.of_owner else f"{pod or 'a container'} ({self.digest[:8]})"

    @property
    def ids(self) -> tuple[str, ...]:
        """All that the kubelet has given with it, by which it knows its pod: devices or places."""
        return self.devices + self.places

    @property
    def of_owner(self) -> bool:
        """Granted by the node's owner, not by the device plugin."""
        return self.minted_ns == 0

    @property
    def live(self) -> bool:
        """May get time and memory."""
        return self.state in (GrantState.GRANTED, GrantState.ATTACHED)

    @property
    def over(self) -> bool:
        """Nobody will ever attach to it again."""
        return not self.live if self.of_owner else self.state in (GrantState.FENCED, GrantState.GONE)

    @property
    def name(self) -> str:
        """As errors call it."""
        return f"job {self.job_id!r}" if self.pod is None else f"pod {self.pod}"


def devices_and_places(resource: str, ids: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which of the ids that were given under this resource are devices, and which are places."""
    return ((), ids) if resource == HOST_RESOURCE else (ids, ())


def derived_token(secret: bytes, nonce: str) -> str:
    """The token of an owner's grant: the same whenever it is asked for, and kept nowhere."""
    return hmac.new(secret, nonce.encode("ascii"), hashlib.sha256).hexdigest()
