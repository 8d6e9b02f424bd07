"""The job's side of the manager's socket. A manager that is away delays the reply, not the device: requests carry the
time of issue, and after a reconnect they are sent again, which gives the same answer."""

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
"""How long a job waits for a manager that is away or hangs (host seconds) before it gives up."""
_FIRST_PAUSE_NS = 5_000_000
_LONGEST_PAUSE_NS = 200_000_000
_LEAST_ANSWER_S = 1.0
_MAX_REASON = 2000


@dataclass(frozen=True, slots=True)
class AttachedDevice:
    """An emulated GPU as the attach reply describes it; `index` is the node's, `memory_bytes` the nominal memory."""

    uuid: str
    index: int
    gpu_type: str
    memory_bytes: int


class ManagerClient:
    """One job's connection. Raises RefusedError, OutOfMemoryError, DeviceLostError or ProtocolError as the manager
    answers, and ManagerUnavailableError when it stays away for `patience_s`.

    `job_id` may be left out where the manager knows the job from its pod. With `follow_host` it is asked to tell of the job's
    share of the node, see `new_share`. After `attach`: `job_id`, `devices` (in the
    order of their indexes), `shared` (others compute on them too) and `steps_done`, where the run goes on.
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
        """The steps done: what the manager knew at `attach` or the checkpoint says, then what was told since."""
        return self._steps_done or 0

    def attach(self, steps_done: int | None = None) -> None:
        """Present the token. `steps_done` steps are in the checkpoint; None: go on where the manager says.

        Attaching again, with other steps, begins another run on the same grant (ranks that agree on a first step).
        """
        self.close()
        self._connected_before = False
        self._steps_done = steps_done
        self._request_as_holder(None)

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        """GPU memory on each device. Raises OutOfMemoryError."""
        self._memory = (persistent_bytes, peak_bytes)
        self._request_as_holder(self._reservation())

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Device time for step `step`, issued at `issue_ns`; `Lease.stop` tells to end the run instead."""
        self._steps_done = step
        reply = self._request_as_holder({"op": "lease", "step": step, "duration_ns": duration_ns, "issue_ns": issue_ns})
        if reply.get("stop"):
            return Lease(issue_ns, issue_ns, stop=True)
        lease = Lease(whole(reply, "start_ns"), whole(reply, "end_ns"))
        self._after_ns = lease.start_ns
        return lease

    def release(self, steps_done: int) -> None:
        """The checkpoint is written; the devices are free."""
        self._end("released", {"op": "release", "steps_done": steps_done})

    def finish(self, steps_done: int) -> None:
        """All steps are done."""
        self._end("finished", {"op": "finish", "steps_done": steps_done})

    def fail(self, reason: str) -> None:
        """The job gives up; how many steps are done stays as the manager knows it."""
        self._end("failed", {"op": "fail", "reason": reason[:_MAX_REASON]})

    def new_share(self) -> HostShare | None:
        """The share of the node that the manager has told of since this was asked last; None: of none. Doesn't wait.

        An amount of 0: of that nothing was said. Raises ProtocolError.
        """
        if self._channel is not None:
            try:
                self._share = self._channel.new_share(least_cpu_milli=0) or self._share
            except ManagerUnavailableError:
                self.close()  # the next request connects again, and hears of it then
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
        self._memory = None  # a new connection must not fail for want of memory that nobody needs any more
        steps_done = message.get("steps_done")
        if isinstance(steps_done, int):
            self._steps_done = steps_done
        self._request(message)
        if self._ended and self._ended != state:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended otherwise ({self._ended})")

    def _request_as_holder(self, message: Message | None) -> Message:
        """A request that makes sense only as long as the grant holds."""
        reply = self._request(message)
        if self._ended:
            raise RefusedError(f"the grant of job {self.job_id!r} has ended ({self._ended})")
        return reply

    def _request(self, message: Message | None) -> Message:
        """Send a message (None: just be attached); connect again and repeat it as long as the manager is away."""
        started_ns, pause_ns = self._now(), _FIRST_PAUSE_NS
        while True:
            try:
                return self._try(message)
            except ManagerUnavailableError:
                self.close()
                if self._now() - started_ns > self._patience_s * NS_PER_S:
                    raise
            except ProtocolError:
                self.close()  # what else is on that stream can't be told any more
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
        """What an attach reply says. A client that knows how far it is knows it best."""
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
