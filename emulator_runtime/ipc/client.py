"""The client of the sharing manager, used by jobs. If the manager is unavailable, replies are delayed but not the emulated
device: requests carry their issue time and are repeated after a reconnect, and a repeated request gets the same reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import ManagerUnavailableError, ProtocolError, RefusedError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.control import ControlChannel, share_in
from emulator_runtime.ipc.fields import mapping, mappings, text, whole
from emulator_runtime.ipc.frames import PROTOCOL_VERSION, Message
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

PATIENCE_S = 30.0
"""How long a job waits for an unavailable manager before it gives up (host seconds)."""
_FIRST_PAUSE_NS = 5_000_000
_LONGEST_PAUSE_NS = 200_000_000
_LEAST_ANSWER_S = 1.0
_MAX_REASON = 2000


@dataclass(frozen=True, slots=True)
class AttachedDevice:
    """An emulated GPU in the reply to attach. `index` is its index on the node, `memory_bytes` its nominal memory."""

    uuid: str
    index: int
    gpu_type: str
    memory_bytes: int


class ManagerClient:
    """The connection of one job. Raises RefusedError, OutOfMemoryError, DeviceLostError or ProtocolError as the manager
    replies, and ManagerUnavailableError if the manager is unavailable for longer than `patience_s`.

    `job_id` may be empty if the manager knows the job from its pod. With `follow_host`, the manager sends changes of the
    job's CPUs and memory, see `new_share`. After `attach`, these are set: `job_id`, `devices` (ordered by index), `shared`
    (other jobs use the devices, too) and `steps_done`, the step at which the run continues.
    """

    def __init__(
        self,
        path: Path,
        token: str,
        job_id: str = "",
        *,
        patience_s: float = PATIENCE_S,
        follow_host: bool = False,
        now: Callable[[], int] = monotonic_ns,
        sleep: Callable[[int], None] = sleep_ns,
    ) -> None:
        self._path = path
        self._token = token
        self.job_id = job_id
        self._patience_s = patience_s
        self._follow_host = follow_host
        self._share: HostShare | None = None
        self._now = now
        self._sleep = sleep
        self._channel: ControlChannel | None = None
        self._steps_done: int | None = None
        self._after_ns = 0
        self._memory: tuple[int, int] | None = None
        self._ended = ""
        self._connected_before = False
        self.reconnects = 0
        self.devices: tuple[AttachedDevice, ...] = ()
        self.shared = False

    @property
    def steps_done(self) -> int:
        """Number of finished steps: from the checkpoint or from the manager at `attach`, then as reported by this client."""
        return self._steps_done or 0

    def attach(self, steps_done: int | None = None) -> None:
        """Present the token. `steps_done`: number of steps in the checkpoint; None: the manager says where to continue.

        A second attach with other steps begins a new run on the same grant (after ranks agreed on a first step).
        """
        self.close()
        self._connected_before = False
        self._steps_done = steps_done
        self._request_as_holder(None)

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        """Reserve GPU memory on each device. Raises OutOfMemoryError."""
        self._memory = (persistent_bytes, peak_bytes)
        self._request_as_holder(self._reservation())

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Request device time for `step`, issued at `issue_ns`. `Lease.stop` means that the run must end instead."""
        self._steps_done = step
        reply = self._request_as_holder({"op": "lease", "step": step, "duration_ns": duration_ns, "issue_ns": issue_ns})
        if reply.get("stop"):
            return Lease(issue_ns, issue_ns, stop=True)
        lease = Lease(whole(reply, "start_ns"), whole(reply, "end_ns"))
        self._after_ns = lease.start_ns
        return lease

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
        if self._channel is not None:
            try:
                self._share = self._channel.new_share(least_cpu_milli=0) or self._share
            except ManagerUnavailableError:
                self.close()  # the next request reconnects, and the reply to attach has the share
            except ProtocolError:
                self.close()
                raise
        share, self._share = self._share, None
        return share

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _end(self, state: str, message: Message) -> None:
        self._memory = None  # not needed any more; reserving it again after a reconnect could fail
        steps_done = message.get("steps_done")
        if isinstance(steps_done, int):
            self._steps_done = steps_done
        self._request(message)
        if self._ended and self._ended != state:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended otherwise ({self._ended})")

    def _request_as_holder(self, message: Message | None) -> Message:
        """A request that is an error once the grant has ended."""
        reply = self._request(message)
        if self._ended:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended ({self._ended})")
        return reply

    def _request(self, message: Message | None) -> Message:
        """Send a message (None: only attach). Reconnects and repeats it while the manager is unavailable."""
        started_ns, pause_ns = self._now(), _FIRST_PAUSE_NS
        while True:
            try:
                return self._try(message)
            except ManagerUnavailableError:
                self.close()
                if self._now() - started_ns > self._patience_s * NS_PER_S:
                    raise
            except ProtocolError:
                self.close()  # the rest of the stream can't be parsed
                raise
            self._sleep(pause_ns)
            pause_ns = min(2 * pause_ns, _LONGEST_PAUSE_NS)

    def _try(self, message: Message | None) -> Message:
        if self._channel is None:
            self._connect()
        if message is None or self._ended:
            return {"ok": True}
        assert self._channel is not None
        return raise_for(self._channel.request(message))

    def _connect(self) -> None:
        channel = ControlChannel.connect(self._path, max(self._patience_s, _LEAST_ANSWER_S))
        try:
            reply = raise_for(channel.request(self._attachment()))
            self._take(reply)
            if self._memory is not None and not self._ended:
                raise_for(channel.request(self._reservation()))
        except BaseException:
            channel.close()
            raise
        self.reconnects += self._connected_before
        self._channel, self._connected_before = channel, True

    def _take(self, reply: Message) -> None:
        """Apply the reply to attach. If this client knows the number of finished steps, its number is kept."""
        self._ended = text(reply, "ended", "")
        self.job_id = text(reply, "job_id", self.job_id)
        self.shared = reply.get("shared") is True
        if "host" in reply:
            self._share = share_in(mapping(reply, "host"), least_cpu_milli=0)
        if not self._ended:
            if self._steps_done is None and "steps_done" in reply:
                self._steps_done = whole(reply, "steps_done")
            self.devices = tuple(_device(entry) for entry in mappings(reply, "devices"))

    def _attachment(self) -> Message:
        attachment: Message = {
            "op": "attach",
            "version": PROTOCOL_VERSION,
            "token": self._token,
            "after_ns": self._after_ns,
        }
        if self.job_id:
            attachment["job_id"] = self.job_id
        if self._follow_host:
            attachment["host"] = True
        return attachment if self._steps_done is None else attachment | {"steps_done": self._steps_done}

    def _reservation(self) -> Message:
        assert self._memory is not None
        return {"op": "reserve", "persistent_bytes": self._memory[0], "peak_bytes": self._memory[1]}


def _device(entry: Message) -> AttachedDevice:
    return AttachedDevice(
        text(entry, "uuid"), whole(entry, "index"), text(entry, "gpu_type"), whole(entry, "memory_bytes")
    )
