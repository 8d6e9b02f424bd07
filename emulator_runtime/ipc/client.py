"""The client of the sharing manager, used by jobs.

A process has the time of its own devices without asking: it reports what it uses, and goes on while the manager is unavailable.
A report that is lost with its connection isn't repeated: it would be counted twice if the manager had read it.
Time of shared devices is demanded and decided later; if the manager is unavailable, answers are delayed but not the device:
demands carry the time at which they are ready and are repeated after a reconnect, and a repeated one gets the same answer.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from emulator_runtime.domain.errors import (
    DeviceLostError,
    ManagerUnavailableError,
    OutOfMemoryError,
    ProtocolError,
    RefusedError,
)
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.stages import StageRun
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import MAX_UNIT_NS, NS_PER_S
from emulator_runtime.ipc import control
from emulator_runtime.ipc.channel import Channel, wait_readable
from emulator_runtime.ipc.control import ControlChannel, share_in
from emulator_runtime.ipc.fields import mapping, mappings, text, whole
from emulator_runtime.ipc.frames import PROTOCOL_VERSION, Message
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.ipc.stages import StageDemands
from emulator_runtime.node.inventory import EXCLUSIVE
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

_T = TypeVar("_T")
PATIENCE_S = 30.0
"""How long a job waits for an unavailable manager before it gives up (host seconds)."""
_FIRST_PAUSE_NS = 5_000_000
_LONGEST_PAUSE_NS = 200_000_000
_LEAST_ANSWER_S = 1.0
_REST = 10
"""A process that can go on without the manager spends at most this part of its time on finding out whether it answers again."""
_MAX_REASON = 2000
_LONGEST_WAIT_S = 3600.0
_NO_GAP_NS = 100_000
_LATE_NS = 10_000_000
"""A stop that was asked for so shortly after a step was issued came at the same moment, and stops come first: a scheduler is a
little late, and the times of steps are exact."""
_COALESCED_NS = 10_000_000
"""Use of own devices is reported when it reaches so far beyond what was reported last."""


@dataclass(frozen=True, slots=True)
class AttachedDevice:
    """An emulated GPU in the reply to attach. `index` is its index on the node, `memory_bytes` its nominal memory. `mode` says
    how jobs share it."""

    uuid: str
    index: int
    gpu_type: str
    memory_bytes: int
    mode: str = EXCLUSIVE


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client tries to reach an unavailable manager (host seconds), and by which clock."""

    seconds: float = PATIENCE_S
    now: Callable[[], int] = monotonic_ns
    sleep: Callable[[int], None] = sleep_ns


class Messages(Protocol):
    """How a client waits for messages of the manager; a warp clock must know of it (ipc/warp.py)."""

    def watch(self, name: str, channel: Channel) -> None:
        """The client has opened this connection, which the manager knows by the same name."""
        ...

    def wait_for_message(self, *channels: Channel) -> None:
        """Wait until something has arrived or can be read on a channel, or it was closed."""
        ...


class BlockingMessages:
    """Waits in the kernel."""

    def watch(self, name: str, channel: Channel) -> None:
        """Nothing to prepare."""

    def wait_for_message(self, *channels: Channel) -> None:
        wait_readable(channels, _LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Device time for a step."""

    step: int
    duration_ns: int
    issue_ns: int
    remaining_ns: int


@dataclass(slots=True)
class _Use:
    """The next report: steps done, and the time of own devices since the last one. `from_ns` None: there is nothing to report."""

    from_ns: int | None = None
    until_ns: int = 0
    work_ns: int = 0
    steps_done: int | None = None
    reported_ns: int = 0
    """Until when the device's time has been reported."""

    def add(self, lease: Lease, steps_done: int | None) -> None:
        """Lengthen the report by a piece of time."""
        if self.from_ns is None:
            self.from_ns, self.work_ns = lease.start_ns, 0
        self.until_ns, self.steps_done = lease.end_ns, steps_done
        self.work_ns += lease.end_ns - lease.start_ns

    def leaves_gap(self, lease: Lease) -> bool:
        """Whether the device does nothing between what is to be reported and this piece of time."""
        return self.from_ns is not None and lease.start_ns > self.until_ns + _NO_GAP_NS

    @property
    def due(self) -> bool:
        """Whether the report should be sent now."""
        return self.from_ns is not None and self.until_ns >= self.reported_ns + _COALESCED_NS

    def take(self) -> list[Message]:
        """The report, if there is one; it counts as sent."""
        if self.from_ns is None:
            return []
        message: Message = {"op": "report", "from_ns": self.from_ns, "until_ns": self.until_ns, "work_ns": self.work_ns}
        self.from_ns, self.reported_ns = None, self.until_ns
        return [message if self.steps_done is None else message | {"steps_done": self.steps_done}]


class ManagerClient:
    """The connection of one job. Raises RefusedError, OutOfMemoryError, DeviceLostError or ProtocolError as the manager
    replies, and ManagerUnavailableError if the manager is unavailable for longer than `patience`.

    `job_id` may be empty if the manager knows the job from its pod. With `follow_host`, the manager sends changes of the
    job's CPUs and memory, see `new_share`. After `attach`, these are set: `job_id`, `devices` (ordered by index),
    `ranks_secret` (common to the pods of a Job; "": there is none) and `steps_done`, the step at which the run continues.

    `session` names one of several processes of a container, different from any other that it has had; only the process without a
    name counts steps and ends the run. `only`: places of the devices that the process uses, if not all.
    """

    def __init__(  # noqa: PLR0913
        self,
        path: Path,
        token: str,
        job_id: str = "",
        *,
        patience: Patience | None = None,
        follow_host: bool = False,
        messages: Messages | None = None,
        session: str = "",
        only: Sequence[int] | None = None,
    ) -> None:
        self._path = path
        self._token = token
        self.job_id = job_id
        self._patience = patience or Patience()
        self._follow_host = follow_host
        self._share: HostShare | None = None
        self._messages = messages or BlockingMessages()
        self._channel: ControlChannel | None = None
        self._name, self._connections = secrets.token_hex(8), 0
        self._wanted: _Wanted | None = None
        self._pieces: dict[str, tuple[int, Lease]] = {}
        """By device: the last step that was answered, and the answer."""
        self._stop: tuple[int, int] | None = None
        """When the manager asked for the end of the run, and the last step that it answers."""
        self._steps_done: int | None = None
        self._after_ns = self._free_ns = 0
        self._use = _Use()
        self._stages = StageDemands()
        self._session, self._only = session, only
        self._away_ns: int | None = None
        """Since when the manager is unavailable (host time), while the job goes on without it."""
        self._next_try_ns = 0
        self._memory: tuple[int, int] | None = None
        self._ended = ""
        self._connected_before = self._alone = False
        self.reconnects = 0
        self.devices: tuple[AttachedDevice, ...] = ()
        self.beside: tuple[ManagerClient, ...] = ()
        """Clients of the same process on other nodes, whose messages are read as well while this one waits."""
        self.ranks_secret = ""

    @property
    def steps_done(self) -> int:
        """Number of finished steps: from the checkpoint or from the manager at `attach`, then as reported by this client."""
        return self._steps_done or 0

    @property
    def ended(self) -> str:
        """How the run has ended, as the manager says; empty if it hasn't."""
        return self._ended

    def attach(self, steps_done: int | None = None) -> None:
        """Present the token. `steps_done`: number of steps in the checkpoint; None: the manager says where to continue.

        A second attach with other steps begins a new run on the same grant (after ranks agreed on a first step).
        """
        self.close()
        self._connected_before = False
        self._steps_done = steps_done
        self._wanted = self._stop = None
        self._free_ns, self._use, self._stages = 0, _Use(), StageDemands()
        self._pieces.clear()
        self._request_as_holder(None)

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        """Reserve GPU memory on each device. Raises OutOfMemoryError; then the reservation before it holds."""
        before, self._memory = self._memory, (persistent_bytes, peak_bytes)
        try:
            self._request_as_holder(self._reservation())
        except OutOfMemoryError:
            self._memory = before
            raise

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease:
        """Device time for `step`, issued at `issue_ns`: at once on own devices, otherwise when the manager has answered.
        `Lease.stop` means that the run must end instead, at `start_ns`. `remaining_ns`: device time of the steps that are left,
        this one included."""
        self._steps_done = step
        wanted = _Wanted(step, duration_ns, issue_ns, remaining_ns)
        if not self.demands:
            self._stay_connected()
        if self.demands or wanted == self._wanted:
            return self._demanded(wanted)
        if not self._session and self._stops(step, issue_ns):
            return Lease(issue_ns, issue_ns, stop=True)
        return self._own(wanted)

    def _stops(self, step: int, issue_ns: int) -> bool:
        """Whether the run ends instead of doing this step."""
        if self._stop is None:
            return False
        at_ns, last = self._stop
        return step > last if self.demands else issue_ns >= at_ns - _LATE_NS

    def _own(self, wanted: _Wanted) -> Lease:
        """Time of devices that nobody else uses."""
        start_ns = max(wanted.issue_ns, self._free_ns)
        lease = Lease(start_ns, start_ns + wanted.duration_ns)
        self._after_ns, self._free_ns = lease.start_ns, lease.end_ns
        if self._use.leaves_gap(lease):
            self._send_use()
        self._use.add(lease, None if self._session else wanted.step)
        if self._use.due:
            self._send_use()
        return lease

    def demand(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None:
        """Demand time of shared devices for a step; `lease` waits for the answer. On exclusive devices there is nothing to do."""
        if self.demands and (self._stop is None or self._session):
            self._want(_Wanted(step, duration_ns, issue_ns, remaining_ns))

    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None:
        """Demand the next step while the present one runs, so that others on the devices don't always come first; not if it is
        issued so late that the manager would refuse it."""
        present_ns = max((lease.start_ns for _, lease in self._pieces.values()), default=0)
        if issue_ns <= present_ns + MAX_UNIT_NS:
            self.demand(step, duration_ns, issue_ns, remaining_ns)

    def prefetch(self, step: int, times: StepTimes, ready_ns: int) -> None:
        """Begin the input of `step` at `ready_ns`: demand what the jobs of the node share, and again whenever messages of the
        manager are read, as soon as one stage has ended. Not if the run ends instead of doing the step before."""
        if self._stages.resources:
            self._stay_connected()
            if self._stops(step - 1, ready_ns):
                return
        devices = [device.uuid for device in self.devices]
        self._send(*self._stages.begin_input(step, times, ready_ns, devices))

    def exchange(self, step: int, times: StepTimes, ready_ns: int) -> None:
        """Begin the exchange of `step` at `ready_ns`, when its devices have done their part."""
        self._send(*self._stages.begin_exchange(step, times, ready_ns))

    def prefetched_ns(self) -> int:
        """When the input that was begun last is ready. Waits until that is known."""
        return self._staged(self._stages.input)

    def exchanged_ns(self) -> int:
        """When the exchange that was begun last ends. Waits until that is known."""
        return self._staged(self._stages.exchange)

    def _staged(self, run: StageRun | None) -> int:
        if run is None:
            raise ValueError("no stage was begun")
        end_ns = run.end_ns if run.end_ns is not None else self._awaited(lambda: run.end_ns)
        return run.ready_ns if end_ns is None else end_ns  # None: nobody waits for this process any more

    def report(self, steps_done: int) -> None:
        """Report finished steps, for a program that has its devices in other sessions."""
        self._steps_done = steps_done
        self._stay_connected()
        self._send({"op": "report", "steps_done": steps_done})

    @property
    def demands(self) -> bool:
        """Whether the devices are shared, so that their time is demanded and decided later."""
        return not self._alone and any(device.mode != EXCLUSIVE for device in self.devices)

    @property
    def stopping(self) -> bool:
        """Whether the manager has asked for the end of the run."""
        self._stay_connected()
        return self._stop is not None

    def answered(self, step: int) -> bool:
        """Whether the demand for `step` has been answered. Doesn't wait."""
        self._stay_connected()
        return self._alone or self._pieces_of(step) is not None

    def release(self, steps_done: int) -> None:
        """Release the devices after a stop; the checkpoint is written."""
        self._end("released", {"op": "release", "steps_done": steps_done})

    def finish(self, steps_done: int) -> None:
        """Report that all steps are done."""
        self._end("finished", {"op": "finish", "steps_done": steps_done})

    def fail(self, reason: str) -> None:
        """Report that the job failed. The manager keeps its number of finished steps."""
        self._end("failed", {"op": "fail", "reason": reason[:_MAX_REASON]})

    def new_share(self) -> HostShare | None:
        """The latest share of the node that the manager sent since the last call, or None. Doesn't wait.

        An amount of 0 means that the manager didn't send it. Raises ProtocolError.
        """
        self._take_notifications()
        if self._channel is not None and self._channel.ended:
            self.close()  # the next request reconnects, and the reply to attach has the share
        share, self._share = self._share, None
        return share

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _stay_connected(self) -> None:
        """Apply the manager's notifications. If it is unavailable, try to reach it, but wait for it only if that has lasted
        longer than the patience."""
        if self._alone:
            return
        try:
            if self._channel is not None:
                self._take_notifications()
                if not self._channel.ended:
                    return
                self.close()
            self._connect_shortly()
            self._away_ns = None
        except ManagerUnavailableError:
            self._away_ns = self._patience.now() if self._away_ns is None else self._away_ns
            if self._patience.now() - self._away_ns > self._patience.seconds * NS_PER_S:
                self._request(None)
                self._away_ns = None
        self._check_not_ended()

    def _send_use(self) -> None:
        """Report the time of own devices that hasn't been reported."""
        if self._channel is not None:
            self._send(*self._use.take())

    def _demanded(self, wanted: _Wanted) -> Lease:
        """The pieces of all devices for this step, from the earliest start to the latest end."""
        self._send_use()
        self._want(wanted, None if self._session else wanted.step)
        return self._awaited(lambda: self._answer(wanted)) or self._own(wanted)

    def _awaited(self, answer: Callable[[], _T | None]) -> _T | None:
        """What `answer` returns as soon as the manager's messages have said it; None: the main process has ended the run."""
        while True:
            if self._channel is None:
                self._request_as_holder(None)
            if self._alone:
                return None
            assert self._channel is not None
            self._take_notifications()
            for other in self.beside:
                other._take_notifications()
            if (found := answer()) is not None:
                return found
            if self._channel.ended:
                self.close()
            else:
                channels = [self._channel, *(other._channel for other in self.beside if other._channel is not None)]
                self._messages.wait_for_message(*(channel for channel in channels if not channel.ended))

    def _answer(self, wanted: _Wanted) -> Lease | None:
        """The lease for this step as far as the manager has answered."""
        if self._stop is not None and wanted.step > self._stop[1]:
            stop_ns = max(wanted.issue_ns, self._stop[0])
            return Lease(stop_ns, stop_ns, stop=True)
        return self._pieces_of(wanted.step)

    def _pieces_of(self, step: int) -> Lease | None:
        """From the earliest start to the latest end of the step's pieces; None: not all devices have been answered for."""
        leases = [lease for number, lease in self._pieces.values() if number == step]
        if len(leases) < len(self.devices):
            return None
        return Lease(min(lease.start_ns for lease in leases), max(lease.end_ns for lease in leases))

    def _want(self, wanted: _Wanted, steps_done: int | None = None) -> None:
        """Demand this step, unless that has been done, and report finished steps: in one message if possible."""
        messages: list[Message] = []
        if wanted != self._wanted:
            self._wanted = wanted
            messages = self._outstanding()
        if steps_done is not None:
            first, *others = messages or [{"op": "report"}]
            messages = [first | {"steps_done": steps_done}, *others]
        self._send(*messages)

    def _outstanding(self) -> list[Message]:
        """The demands for the wanted step that haven't been answered."""
        if (wanted := self._wanted) is None:
            return []
        demand: Message = {"op": "demand", "sequence": wanted.step, "ready_ns": wanted.issue_ns}
        demand |= {"work_ns": wanted.duration_ns, "remaining_ns": wanted.remaining_ns}
        answered = {uuid for uuid, (step, _) in self._pieces.items() if step == wanted.step}
        return [demand | {"resource": device.uuid} for device in self.devices if device.uuid not in answered]

    def _send(self, *messages: Message) -> None:
        """Send messages without replies. If the connection is lost, the next request finds that and sends them again."""
        if self._channel is not None and messages:
            try:
                self._channel.send(*messages)
            except ManagerUnavailableError:
                with contextlib.suppress(ProtocolError):
                    self._channel.fill()  # what the manager has said before it went counts

    def _take_notifications(self) -> None:
        """Apply what the manager has sent between replies. Raises the manager's error about a message, and ProtocolError; then
        the connection is closed, because the rest of the stream can't be parsed."""
        if self._channel is None:
            return
        try:
            self._apply(self._channel.notifications())
            error = self._channel.read_already()
            if error is not None:  # messages are answered only by errors
                raise_for(error)
                raise ProtocolError("the manager sent a reply to no request")
        except ProtocolError:
            self.close()
            raise

    def _apply(self, notifications: list[Message]) -> None:
        for message in notifications:
            match message["op"]:
                case control.PIECE:
                    resource, number = text(message, "resource"), whole(message, "sequence")
                    lease = Lease(whole(message, "start_ns"), whole(message, "end_ns"))
                    if any(resource == each.name for each in self._stages.resources):
                        self._send(*self._stages.served(resource, number, lease))
                    else:
                        self._pieces[resource] = number, lease
                        self._after_ns, self._free_ns = lease.start_ns, max(self._free_ns, lease.end_ns)
                case control.STOP:
                    self._stop = whole(message, "at_ns"), whole(message, "last", least=-1)
                case control.MODE:
                    uuid, mode = text(message, "resource"), text(message, "mode")
                    self.devices = tuple(replace(d, mode=mode) if d.uuid == uuid else d for d in self.devices)
                case control.LOST:
                    raise DeviceLostError(text(message, "error"))
                case _:
                    self._share = share_in(message, least_cpu_milli=0)

    def _end(self, state: str, message: Message) -> None:
        self._send_use()
        self._memory = self._wanted = None  # not needed any more; reserving it again after a reconnect could fail
        steps_done = message.get("steps_done")
        if isinstance(steps_done, int):
            self._steps_done = steps_done
        self._request(message)
        if self._ended and self._ended != state:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended otherwise ({self._ended})")

    def _request_as_holder(self, message: Message | None) -> Message:
        """A request that is an error once the grant has ended."""
        reply = self._request(message)
        self._check_not_ended()
        return reply

    def _check_not_ended(self) -> None:
        """A further process goes on when the main one has ended the run: nobody else has the container's devices yet, and what is
        left of its step isn't accounted."""
        if self._session and self.reconnects and self._ended in ("finished", "released"):
            self._alone = True
            self.close()
        elif self._ended:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended ({self._ended})")

    def _request(self, message: Message | None) -> Message:
        """Send a message (None: only attach). Reconnects and repeats it while the manager is unavailable."""
        started_ns, pause_ns = self._patience.now(), _FIRST_PAUSE_NS
        while True:
            try:
                return self._try(message)
            except ManagerUnavailableError:
                self.close()
                if self._patience.now() - started_ns > self._patience.seconds * NS_PER_S:
                    raise
            except ProtocolError:
                self.close()  # the rest of the stream can't be parsed
                raise
            self._patience.sleep(pause_ns)
            pause_ns = min(2 * pause_ns, _LONGEST_PAUSE_NS)

    def _try(self, message: Message | None) -> Message:
        if self._channel is None:
            self._connect()
        if message is None or self._ended:
            return {"ok": True}
        assert self._channel is not None
        return raise_for(self._channel.request(message))

    def _connect_shortly(self) -> None:
        """Try once to connect. A manager that accepts connections and doesn't answer must not delay each step."""
        began_ns = self._patience.now()
        if began_ns < self._next_try_ns:
            raise ManagerUnavailableError("the manager didn't answer just now")
        try:
            self._connect(_LEAST_ANSWER_S)
        except ManagerUnavailableError:
            now_ns = self._patience.now()
            self._next_try_ns = now_ns + _REST * (now_ns - began_ns)
            raise

    def _connect(self, answer_s: float = 0.0) -> None:
        """Connect and attach; the manager has `answer_s` host seconds for each answer until then (0: the patience)."""
        patience_s = max(self._patience.seconds, _LEAST_ANSWER_S)
        channel = ControlChannel.connect(self._path, answer_s or patience_s)
        self._connections += 1
        try:
            reply = raise_for(channel.request(self._attachment()))
            self._take(reply)
            if self._memory is not None and not self._ended:
                raise_for(channel.request(self._reservation()))
            if not self._ended:
                for message in self._use.take() + self._outstanding() + self._stages.outstanding():
                    channel.send(message)
        except BaseException:
            channel.close()
            raise
        channel.wait_up_to(patience_s)
        self.reconnects += self._connected_before
        self._channel, self._connected_before = channel, True
        if self.demands or self._stages.resources:
            self._messages.watch(self._connection_name, channel)

    def _take(self, reply: Message) -> None:
        """Apply the reply to attach. If this client knows the number of finished steps, its number is kept."""
        self._ended = text(reply, "ended", "")
        self.job_id = text(reply, "job_id", self.job_id)
        self.ranks_secret = text(reply, "ranks_secret", "")
        self._stages.take(reply)
        if "host" in reply:
            self._share = share_in(mapping(reply, "host"), least_cpu_milli=0)
        if not self._ended:
            if self._steps_done is None and "steps_done" in reply:
                self._steps_done = whole(reply, "steps_done")
            self.devices = tuple(_device(entry) for entry in mappings(reply, "devices"))
            self._free_ns = max(self._free_ns, whole(reply, "free_ns", 0))

    def _attachment(self) -> Message:
        attachment: Message = {
            "op": "attach",
            "version": PROTOCOL_VERSION,
            "token": self._token,
            "after_ns": self._after_ns,
            "connection": self._connection_name,
        }
        if self.job_id:
            attachment["job_id"] = self.job_id
        if self._follow_host:
            attachment["host"] = True
        if self._only is not None:
            attachment["devices"] = list(self._only)
        if self._session:
            return attachment | {"session": self._session}
        return attachment if self._steps_done is None else attachment | {"steps_done": self._steps_done}

    @property
    def _connection_name(self) -> str:
        return f"{self._name}.{self._connections}"

    def _reservation(self) -> Message:
        assert self._memory is not None
        return {"op": "reserve", "persistent_bytes": self._memory[0], "peak_bytes": self._memory[1]}


def _device(entry: Message) -> AttachedDevice:
    return AttachedDevice(
        text(entry, "uuid"),
        whole(entry, "index"),
        text(entry, "gpu_type"),
        whole(entry, "memory_bytes"),
        text(entry, "mode", EXCLUSIVE),
    )
