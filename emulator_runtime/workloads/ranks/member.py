"""The ranks other than rank 0: they connect to rank 0 and follow it from step to step."""

from __future__ import annotations

import contextlib
import socket

from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.fields import text, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from emulator_runtime.workloads.ranks.clock_offset import ClockOffset
from emulator_runtime.workloads.ranks.group import Crossing, Start
from emulator_runtime.workloads.ranks.link import SLICE_S, RankLink
from emulator_runtime.workloads.ranks.options import RANK_PROTOCOL, RankOptions, proof_of

_CONNECT_TIMEOUT_S = 5.0
_PAUSE_SLICES = 5
_NOTIFY_EVERY_NS = 10 * NS_PER_S
_LEAST_NS = -(2**62)


class _RejectedError(ClusterError):
    """Rank 0 has rejected this rank; a retry doesn't help."""


class Member:
    """The group of a rank other than 0 (ranks.group.Group)."""

    def __init__(self, options: RankOptions) -> None:
        self.nodes = options.nodes
        self.rank = options.rank
        self._options = options
        self._offset = ClockOffset()
        self._link: RankLink | None = None

    def join(self, progress: int, gpus: int, secret: str = "") -> Start:
        """Connect to rank 0 and wait for the start. Each attempt looks up the name again: rank 0's pod may start later, and
        the cluster's DNS caches a failed look-up for up to half a minute."""
        give_up_ns = monotonic_ns() + round(self._options.join_timeout_s * NS_PER_S)
        notify_ns = monotonic_ns() + _NOTIFY_EVERY_NS
        while True:
            self._options.check_joining()
            try:
                return self._try_join(progress, gpus, secret, give_up_ns)
            except _RejectedError:
                self.close()
                raise
            except (OSError, ClusterError) as error:
                self.close()
                cause = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            now_ns = monotonic_ns()
            if now_ns > give_up_ns:
                raise ClusterError(
                    f"rank 0 at {self._options.address} can't be reached for {self._options.join_timeout_s:g} s ({cause}); "
                    "does its pod run, and is there a headless Service with publishNotReadyAddresses?"
                )
            if now_ns > notify_ns:
                self._options.notify(f"waiting for rank 0 at {self._options.address}: {cause}")
                notify_ns = now_ns + _NOTIFY_EVERY_NS
            for _ in range(_PAUSE_SLICES):
                self._options.check_joining()
                sleep_ns(round(SLICE_S * NS_PER_S))

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        """Report that this rank has done the step, and wait for the others."""
        sent_ns = monotonic_ns()
        done = {"op": "done", "steps_done": steps_done, "end_ns": self._offset.to_theirs(end_ns), "stop": stop}
        go, arrived_ns = self._exchange(done, "go")
        self._learn(sent_ns, go, arrived_ns)
        crossed_ns = self._offset.to_own(self._whole(go, "end_ns"))
        return Crossing(max(end_ns, min(crossed_ns, arrived_ns)), text(go, "stop", ""))

    def check(self) -> None:
        """Raises ClusterError if rank 0 has disconnected or has reported that another rank failed."""
        if self._link is not None:
            self._link.poll()
            message = self._link.peek()
            if message is not None:
                _raise_for(message)

    def farewell(self) -> None:
        """Report that this rank has recorded its last step, and wait until all ranks have."""
        self._exchange({"op": "finished"}, "bye")

    def leave(self, reason: str) -> None:
        if self._link is not None:
            with contextlib.suppress(ClusterError):
                self._link.send({"op": "leave", "reason": reason})
        self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _try_join(self, progress: int, gpus: int, secret: str, give_up_ns: int) -> Start:
        sock = socket.create_connection((self._options.host, self._options.port), _CONNECT_TIMEOUT_S)
        self._link = RankLink(sock, "rank 0")
        patience_s = max(0.0, (give_up_ns - monotonic_ns()) / NS_PER_S)
        hello, _ = self._link.receive(patience_s, self._options.check_joining)
        nonce = hello.get("nonce") if hello.get("version") == RANK_PROTOCOL else None
        if not isinstance(nonce, str):
            raise _RejectedError("rank 0 runs another version of emugpu; run one version in all pods")
        proof = proof_of(secret, nonce, self.rank)
        sent_ns = monotonic_ns()
        self._link.send(self._options.join_message(progress, gpus, proof))
        start, arrived_ns = self._link.receive(patience_s, self._options.check_joining)
        _raise_for(start)
        self._learn(sent_ns, start, arrived_ns)
        return Start(self._whole(start, "first"), self._whole(start, "gpus"))

    def _exchange(self, message: Message, wanted: str) -> tuple[Message, int]:
        """Send a message and return the reply and its arrival time. Raises ClusterError for an unexpected or no reply."""
        if self._link is None:
            raise ClusterError("this rank has left the group")
        self._link.send(message)
        answer, arrived_ns = self._link.receive(self._options.barrier_timeout_s, self._options.check_waiting)
        _raise_for(answer)
        if answer.get("op") != wanted:
            raise ClusterError(f"rank 0 answered {answer.get('op')!r} where {wanted!r} was due")
        return answer, arrived_ns

    def _learn(self, sent_ns: int, answer: Message, arrived_ns: int) -> None:
        self._offset.add(sent_ns, self._whole(answer, "received_ns"), self._whole(answer, "sent_ns"), arrived_ns)

    def _whole(self, message: Message, name: str) -> int:
        try:
            return whole(message, name, least=_LEAST_NS)
        except ProtocolError as error:
            raise ClusterError(f"rank 0 sent a wrong message: {error}; do all pods run one version?") from error


def _raise_for(message: Message) -> None:
    """Raise the reason that rank 0 gives for an abort."""
    if message.get("op") == "abort":
        raise _RejectedError(str(message.get("reason")))
