"""The options that all ranks of a job must have in common, and how long the ranks wait for each other."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from emulator_runtime.domain.errors import InputError
from emulator_runtime.ipc.frames import Message

RANK_PROTOCOL = 2
MAX_NODES = 4096
JOIN_TIMEOUT_S = 600.0
BARRIER_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Options of a rank. `work` describes the training, so that pods of different jobs reject each other.

    `check_joining` and `check_waiting` are called while this rank waits and may raise. `notify` is called with lines for the
    user. Times are host seconds.
    """

    nodes: int
    rank: int
    host: str
    port: int
    work: str
    join_timeout_s: float = JOIN_TIMEOUT_S
    barrier_timeout_s: float = BARRIER_TIMEOUT_S
    check_joining: Callable[[], None] = field(default=lambda: None)
    check_waiting: Callable[[], None] = field(default=lambda: None)
    notify: Callable[[str], None] = field(default=lambda line: None)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def join_message(self, progress: int, gpus: int, proof: str) -> Message:
        return {
            "op": "join",
            "version": RANK_PROTOCOL,
            "nodes": self.nodes,
            "rank": self.rank,
            "work": self.work,
            "progress": progress,
            "gpus": gpus,
            "proof": proof,
        }


def proof_of(secret: str, nonce: str, rank: int) -> str:
    """What a rank joins with: it shows that it knows the job's secret, on one connection. `nonce`: from rank 0, for that one."""
    return hmac.new(secret.encode(), f"{nonce} {rank}".encode(), "sha256").hexdigest()


def parse_address(text: str, place: str) -> tuple[str, int]:
    """`host:port` or `[IPv6 address]:port`. Raises InputError naming `place`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise InputError(place, f"must be HOST:PORT, such as trainer-0.trainer:29500, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
