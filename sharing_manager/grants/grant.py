"""A grant: a job's right to use certain devices of this node. A secret token, known only to its holder, identifies it.

There are two kinds. The node's owner (a local cluster) grants devices to a job by name, for one run. The device plugin
mints a token at each Allocate; its pod becomes known when it attaches, and the grant outlasts runs and container restarts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.node.grant_files import GrantRecord
from emulator_runtime.node.inventory import split_device_id
from emulator_runtime.node.layout import HOST_RESOURCE
from emulator_runtime.sharing.demands import WHOLE_MILLI, Terms
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.grants.session import Session


class GrantState(StrEnum):
    """The states of a grant. `released`, `finished` and `failed` end a run, and with it an owner's grant; `fenced` and
    `gone` end a pod's grant. Only grants in state `granted` or `attached` hold devices."""

    GRANTED = "granted"
    ATTACHED = "attached"
    RELEASED = "released"
    FINISHED = "finished"
    FAILED = "failed"
    FENCED = "fenced"
    GONE = "gone"


RUNS_AT_ONCE = 60
"""Runs that a container may begin in quick succession; ranks that agree on a first step begin two at each start."""
RUN_EVERY_NS = 5 * NS_PER_S
"""After that, one run in this time (emulated). A run writes up to five events, so a container that only fails writes no
more than one that trains, whose progress is written five times a second."""


@dataclass(slots=True)
class RunBudget:
    """A token bucket for the runs of one container: each leaves events in the node's log and in Redis.

    `full_ns`: when it will be full again.
    """

    full_ns: int = 0

    def wait_ns(self, now_ns: int) -> int:
        """How long until a run may begin; 0: now."""
        return max(0, self.full_ns + RUN_EVERY_NS - now_ns - RUNS_AT_ONCE * RUN_EVERY_NS)

    def take(self, now_ns: int) -> None:
        self.full_ns = max(self.full_ns, now_ns) + RUN_EVERY_NS


@dataclass(slots=True)
class Grant:
    """The devices granted to a job, and the job's progress. Times are emulated nanoseconds.

    `digest`: SHA-256 of the token. `devices`: device ids, which may name a replica (`UUID::3`). `slots`: the ids by which the
    kubelet knows them, which may be those of other devices (devices/slots.py). `places`: ids of host slots, for a container
    without devices. `floor_ns`: no lease starts before it (first the time of the grant, then the end
    of the last lease). `last_step` and `last_lease` give a repeated request the same answer. `nonce`: the token of an
    owner's grant is derived from it. `minted_ns`: wall clock of a pod's Allocate; 0 for an owner's grant. `pod`: the pod
    that the grant is bound to; None if only the token is known. `terms`: for each of `uuids`, where devices are shared; missing
    ones are the default.
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
    """The steps that are in the event log. The steps from here to `steps_done` will be written as one range."""
    nonce: str = ""
    minted_ns: int = 0
    resource: str = ""
    places: tuple[str, ...] = ()
    terms: tuple[Terms, ...] = ()
    bound: bool = True
    pod: PodIdentity | None = None
    oom_logged: bool = False
    """Whether the log has an out-of-memory event of this run."""
    runs: RunBudget = field(default_factory=RunBudget, repr=False, compare=False)
    slots: tuple[str, ...] = field(init=False)
    uuids: tuple[str, ...] = field(init=False)
    """The physical devices, each once, even if the grant has several of its replicas."""
    holder: str = field(init=False)
    """The unique name of this grant as a holder of devices."""
    main: Session = field(init=False, repr=False, compare=False)
    """The session of the only process, or of the one that speaks for the job."""
    named: dict[str, Session] = field(default_factory=dict, repr=False, compare=False)
    """The sessions of further processes that are connected, by name."""

    def __post_init__(self) -> None:
        self.slots = self.devices
        self.use(self.devices)
        self.bind(self.job_id, self.pod)
        self.main = Session(self)

    @classmethod
    def of_record(cls, record: GrantRecord) -> Grant:
        """A grant as the device plugin minted it: not bound to a pod, and holding no device yet."""
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

    def use(self, devices: tuple[str, ...]) -> None:
        """From now on the grant's slots stand for these devices."""
        self.devices, self.uuids = devices, uuids_of(devices)

    def bind(self, job_id: str, pod: PodIdentity | None) -> None:
        """Bind the grant to this job and this pod."""
        self.job_id, self.pod = job_id, pod
        self.holder = job_id if self.of_owner else f"{pod or 'a container'} ({self.digest[:8]})"

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids that the kubelet allocated with this grant: devices or host slots. The kubelet's list names the pod
        for them."""
        return self.slots + self.places

    def terms_of(self, uuid: str, replicas: int) -> Terms:
        """The terms on which the grant's job uses this device; where the owner stated none, its share is that of the device's
        replicas that it has."""
        stated = dict(zip(self.uuids, self.terms, strict=False)).get(uuid)
        held = sum(split_device_id(device)[0] == uuid for device in self.devices)
        row = self.terms[0].row if self.terms else 0
        return stated or Terms(row, milli=max(1, WHOLE_MILLI * held // max(replicas, held)))

    @property
    def sessions(self) -> list[Session]:
        """The main session, and those of further processes."""
        return [self.main, *self.named.values()]

    @property
    def of_owner(self) -> bool:
        """Whether the node's owner made the grant, and not the device plugin."""
        return self.minted_ns == 0

    @property
    def live(self) -> bool:
        """Whether the grant may get leases and memory."""
        return self.state in (GrantState.GRANTED, GrantState.ATTACHED)

    @property
    def ended(self) -> bool:
        """Whether nothing can attach to the grant any more."""
        return not self.live if self.of_owner else self.state in (GrantState.FENCED, GrantState.GONE)

    @property
    def name(self) -> str:
        """The grant's name in error messages."""
        return f"job {self.job_id!r}" if self.pod is None else f"pod {self.pod}"


def uuids_of(devices: Iterable[str]) -> tuple[str, ...]:
    """The physical devices of these ids, each once."""
    return tuple(dict.fromkeys(split_device_id(device)[0] for device in devices))


def devices_and_places(resource: str, ids: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the ids that were allocated under this resource into devices and host slots."""
    return ((), ids) if resource == HOST_RESOURCE else (ids, ())


def derived_token(secret: bytes, nonce: str) -> str:
    """The token of an owner's grant. It is computed each time and stored nowhere."""
    return hmac.new(secret, nonce.encode("ascii"), hashlib.sha256).hexdigest()
