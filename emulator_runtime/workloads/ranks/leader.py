"""Rank 0: the other ranks connect to it, and it tells them when all ranks have done a step."""

from __future__ import annotations

import contextlib
import errno
import hmac
import socket

from emulator_runtime.domain.errors import ClusterError, EmuGpuError, InputError, ProtocolError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.channel import wait_readable
from emulator_runtime.ipc.fields import text, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.workloads.ranks.group import Crossing, Start
from emulator_runtime.workloads.ranks.link import SLICE_S, RankLink
from emulator_runtime.workloads.ranks.options import RANK_PROTOCOL, RankOptions, proof_of

_NOTIFY_EVERY_NS = 10 * NS_PER_S
_BACKLOG = 512
_MAX_UNIDENTIFIED = 512
"""Maximum number of connections without a join message; more come from port scans, and the oldest is closed."""


class Leader:
    """The group of rank 0 (ranks.group.Group). Listens from construction; raises InputError if it can't."""

    rank = 0

    def __init__(self, options: RankOptions) -> None:
        self.nodes = options.nodes
        self._options = options
        self._links: dict[int, RankLink] = {}
        self._joined: dict[int, tuple[Message, int]] = {}
        self._secret = ""
        self._listener = _listen(options)

    def join(self, progress: int, gpus: int, secret: str = "") -> Start:
        """Wait until every rank has connected. A rank that disconnects meanwhile may connect again."""
        self._secret = secret
        unidentified: list[RankLink] = []
        give_up_ns = monotonic_ns() + round(self._options.join_timeout_s * NS_PER_S)
        notify_ns = monotonic_ns() + _NOTIFY_EVERY_NS
        try:
            while len(self._links) < self.nodes - 1:
                self._options.check_joining()
                now_ns = monotonic_ns()
                if now_ns > give_up_ns:
                    raise ClusterError(
                        f"{self._missing()} did not come within {self._options.join_timeout_s:g} s; do all pods of the "
                        f"job run, and is --nodes {self.nodes} right?"
                    )
                if now_ns > notify_ns:
                    self._options.notify(f"waiting for {self._missing()}")
                    notify_ns = now_ns + _NOTIFY_EVERY_NS
                self._meet(unidentified)
        finally:
            for link in unidentified:
                link.close()
            self._listener.close()
        messages = [message for message, _ in self._joined.values()]
        start = Start(min([progress, *(m["progress"] for m in messages)]), gpus + sum(m["gpus"] for m in messages))
        self._send_to_all({"op": "start", "first": start.first, "gpus": start.gpus}, self._joined)
        return start

    def barrier(self, steps_done: int, end_ns: int, *, stop: bool) -> Crossing:
        """Wait for all ranks, then let all continue."""
        replies = self._gather("done")
        wrong = [rank for rank, (message, _) in replies.items() if message.get("steps_done") != steps_done]
        if wrong:
            raise self._abort(f"rank {wrong[0]} has done another number of steps than rank 0 ({steps_done})")
        try:
            ends = [whole(message, "end_ns", least=-(2**62)) for message, _ in replies.values()]
        except ProtocolError as error:
            raise self._abort(f"a rank sent a wrong message: {error}") from error
        stopping = ["rank 0"] if stop else [f"rank {rank}" for rank, (m, _) in replies.items() if m.get("stop")]
        crossing = Crossing(max(end_ns, *ends), stopping[0] if stopping else "")
        go: Message = {"op": "go", "steps_done": steps_done, "end_ns": crossing.end_ns, "stop": crossing.stop}
        self._send_to_all(go, replies)
        return crossing

    def check(self) -> None:
        """Raises ClusterError if a rank has failed, and tells the others."""
        for link in self._links.values():
            try:
                link.poll()
            except ClusterError as error:
                raise self._abort(str(error)) from error
            message = link.peek()
            if message is not None and message.get("op") == "leave":
                raise self._abort(f"{link.name} left: {message.get('reason')}")

    def farewell(self) -> None:
        """Wait until all ranks have recorded their last step."""
        self._send_to_all({"op": "bye"}, self._gather("finished"))

    def leave(self, reason: str) -> None:
        self._abort(f"rank 0 left: {reason}")

    def close(self) -> None:
        self._listener.close()
        for link in self._links.values():
            link.close()

    # --- joining ----------------------------------------------------------------------------------------------------

    def _meet(self, unidentified: list[RankLink]) -> None:
        """Accept connections, read join messages, and remove ranks that disconnected."""
        wait_readable([self._listener, *unidentified, *self._links.values()], SLICE_S)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            unidentified.append(RankLink(self._accept(), "a rank that has not said who it is"))
            with contextlib.suppress(ClusterError):  # it has gone, which poll finds
                unidentified[-1].send({"op": "hello", "version": RANK_PROTOCOL, "nonce": unidentified[-1].nonce})
        if len(unidentified) > _MAX_UNIDENTIFIED:
            unidentified.pop(0).close()
        for link in list(unidentified):
            try:
                link.poll()
                if (taken := link.take()) is None:
                    continue
                self._admit(link, *taken)
            except EmuGpuError as error:
                with contextlib.suppress(ClusterError):
                    link.send({"op": "abort", "reason": str(error)})
                link.close()
            unidentified.remove(link)
        for rank, link in list(self._links.items()):
            try:
                link.poll()
            except ClusterError:
                link.close()
                del self._links[rank], self._joined[rank]

    def _accept(self) -> socket.socket:
        """The next connection. Raises BlockingIOError if there is none, ConnectionError if it is closed already,
        ClusterError if this process has no free descriptor."""
        try:
            return self._listener.accept()[0]
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            fix = f"raise the limit of open files (ulimit -n) well above the {self.nodes} nodes"
            raise ClusterError(f"rank 0 can't take another connection: {error.strerror}; {fix}") from error

    def _admit(self, link: RankLink, message: Message, arrived_ns: int) -> None:
        """Add a rank. Raises ProtocolError or ClusterError if it doesn't belong to this job."""
        options = self._options
        if whole(message, "version") != RANK_PROTOCOL:
            raise ClusterError("rank 0 runs another version of emugpu; run one version in all pods")
        rank, nodes = whole(message, "rank"), whole(message, "nodes")
        whole(message, "progress")
        whole(message, "gpus")
        if nodes != self.nodes or not 0 < rank < nodes:
            raise ClusterError(
                f"rank 0 expects {self.nodes} nodes, not rank {rank} of {nodes}; give all pods the same --nodes"
            )
        expected = proof_of(self._secret, link.nonce, rank)
        if not hmac.compare_digest(text(message, "proof").encode(), expected.encode()):
            raise ClusterError(
                "rank 0 has another secret from its sharing manager; run the ranks as the pods of one Job, "
                "and one version of emugpu on all nodes"
            )
        if text(message, "work") != options.work:
            raise ClusterError(f"rank 0 trains something else ({options.work}); give all pods the same arguments")
        former = self._links.get(rank)
        if former is not None:
            former.close()  # the rank's pod was replaced before all ranks had joined
        link.name = f"rank {rank}"
        self._links[rank], self._joined[rank] = link, (message, arrived_ns)

    def _missing(self) -> str:
        missing = [str(rank) for rank in range(1, self.nodes) if rank not in self._links]
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        return f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing[:8])}{more}"

    # --- together ---------------------------------------------------------------------------------------------------

    def _gather(self, op: str) -> dict[int, tuple[Message, int]]:
        """One message of every other rank and its arrival time."""
        replies: dict[int, tuple[Message, int]] = {}
        give_up_ns = monotonic_ns() + round(self._options.barrier_timeout_s * NS_PER_S)
        while True:
            self.check()
            for rank, link in self._links.items():
                if rank not in replies and (taken := link.take()) is not None:
                    if taken[0].get("op") != op:
                        raise self._abort(f"{link.name} sent {taken[0].get('op')!r} where {op!r} was due")
                    replies[rank] = taken
            if len(replies) == len(self._links):
                return replies
            self._options.check_waiting()
            if monotonic_ns() > give_up_ns:
                late_rank = next(link.name for rank, link in self._links.items() if rank not in replies)
                raise self._abort(
                    f"{late_rank} has not done its step for {self._options.barrier_timeout_s:g} s; see its pod's log"
                )
            wait_readable(self._links.values(), SLICE_S)

    def _send_to_all(self, message: Message, replies: dict[int, tuple[Message, int]]) -> None:
        """Send the same message to all, with the timestamps from which each rank estimates its clock offset."""
        for rank, link in self._links.items():
            try:
                link.send(message | {"received_ns": replies[rank][1], "sent_ns": monotonic_ns()})
            except ClusterError as error:
                raise self._abort(str(error)) from error

    def _abort(self, reason: str) -> ClusterError:
        """Send the reason to all ranks and close. Returns the error for the caller to raise."""
        for link in self._links.values():
            with contextlib.suppress(ClusterError):
                link.send({"op": "abort", "reason": reason})
        self.close()
        self._links.clear()
        return ClusterError(reason)


def _listen(options: RankOptions) -> socket.socket:
    """The port to which the other ranks connect, on all addresses of this pod."""
    try:
        if socket.has_dualstack_ipv6():
            listener = socket.create_server(
                ("", options.port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
        else:
            listener = socket.create_server(("", options.port), backlog=_BACKLOG)
    except OSError as error:
        raise InputError(
            "--rendezvous", f"rank 0 can't listen on port {options.port}: {error.strerror}; choose another port"
        ) from error
    listener.setblocking(False)  # noqa: FBT003
    return listener
