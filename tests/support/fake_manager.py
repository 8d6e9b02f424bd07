"""Fakes for testing code that uses an emulated GPU, without processes and host time; only `answering` opens a socket.

manager = FakeManager(stop_at=3)
outcome = TrainingRun(order, ManualClock(), manager).run()
assert outcome.kind == "stopped" and manager.calls[-1] == ("release", 3)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, OutOfMemoryError, ProtocolError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import GIB
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.ipc.control import resize_message
from emulator_runtime.ipc.fields import text, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection, Poller

ONE_DEVICE = (AttachedDevice("GPU-0", 0, "Tesla_V100-PCIE-32GB", 32 * GIB),)


class FakeManager:
    """A sharing manager with one device and one job. It records every call and every lease.

    `stop_at`: the lease for this step is a stop. `busy_ns`: device time of other jobs before each lease. `errors`: the
    error that each call raises, by name (`{"reserve": OutOfMemoryError("full")}`). `steps_done` and `devices`: the reply
    to an `attach` without steps. `shares`: new CPUs and memory of the job, by the number of leases after which they apply.
    """

    def __init__(
        self,
        *,
        stop_at: int | None = None,
        busy_ns: int = 0,
        errors: Mapping[str, EmuGpuError] | None = None,
        steps_done: int = 0,
        devices: tuple[AttachedDevice, ...] = ONE_DEVICE,
        shares: Mapping[int, HostShare] | None = None,
    ) -> None:
        self.ranks_secret = "secret of the job"
        self._stop_at = stop_at
        self._busy_ns = busy_ns
        self._errors = errors or {}
        self.steps_done = steps_done
        self.devices = devices
        self._shares = dict(shares or {})
        self.calls: list[tuple[object, ...]] = []
        self.leases: list[Lease] = []
        self.queued: list[tuple[int, int, int, int]] = []
        self._input_ns = self._exchange_ns = 0

    def attach(self, steps_done: int | None = None) -> None:
        self._note("attach", steps_done)
        if steps_done is not None:
            self.steps_done = steps_done

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        self._note("reserve", persistent_bytes, peak_bytes)

    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None:
        """Recorded in `queued`: a device of its own needs no demands ahead."""
        self.queued.append((step, duration_ns, issue_ns, remaining_ns))

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease:
        """Device time from `issue_ns`, after the previous lease and `busy_ns`."""
        self._note("lease", step, duration_ns, issue_ns)
        self.steps_done = step
        if step == self._stop_at:
            return Lease(issue_ns, issue_ns, stop=True)
        free_ns = self.leases[-1].end_ns if self.leases else 0
        start_ns = max(issue_ns, free_ns) + self._busy_ns
        self.leases.append(Lease(start_ns, start_ns + duration_ns))
        return self.leases[-1]

    def prefetch(self, step: int, times: StepTimes, ready_ns: int) -> None:
        """The node has no resources that jobs share."""
        self._input_ns = ready_ns + times.prepared_ns

    def prefetched_ns(self) -> int:
        return self._input_ns

    def exchange(self, step: int, times: StepTimes, ready_ns: int) -> None:
        self._exchange_ns = ready_ns + times.stages.exchange_ns

    def exchanged_ns(self) -> int:
        return self._exchange_ns

    def release(self, steps_done: int) -> None:
        self._note("release", steps_done)

    def finish(self, steps_done: int) -> None:
        self._note("finish", steps_done)

    def fail(self, reason: str) -> None:
        self._note("fail", reason)

    def new_share(self) -> HostShare | None:
        due = [self._shares.pop(step) for step in sorted(self._shares) if step <= len(self.leases)]
        return due[-1] if due else None

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self._errors:
            raise self._errors[name]


class FakeNode:
    """A manager for `answering`. Each token has one job with its own devices, which no other job uses.

    It checks the order of steps like the real manager. For each token, `ranges` lists its runs as [first step, steps done]
    and `ends` how they ended ("finished", "released", or no entry yet). Jobs that follow their share get `shares`: that of
    step 0 in the reply to attach, the others when they request a lease for that step.
    """

    def __init__(
        self,
        devices: int = 1,
        *,
        gpu_type: str = "Tesla_V100-PCIE-32GB",
        usable_bytes: int = 30 * GIB,
        shares: Mapping[int, HostShare] | None = None,
    ) -> None:
        self._devices = [
            {"uuid": f"GPU-{n}", "index": n, "gpu_type": gpu_type, "memory_bytes": 32 * GIB} for n in range(devices)
        ]
        self._usable_bytes = usable_bytes
        self._shares = shares or {}
        self._followers: set[Connection] = set()
        self.ranges: dict[str, list[list[int]]] = {}
        self.ends: dict[str, list[str]] = {}
        self.errors: dict[str, EmuGpuError] = {}
        self.lost = ""
        """Why the devices are lost."""
        self._tokens: dict[Connection, str] = {}

    def __call__(self, connection: Connection, message: Message) -> Message | None:
        """Answer one request, or None for a message without a reply; raises the error that `errors` has for its op."""
        op = text(message, "op")
        if op in self.errors:
            raise self.errors[op]
        if op == "attach":
            return self._attach(connection, message)
        token = self._tokens[connection]
        run = self.ranges[token][-1]
        match op:
            case "reserve":
                if whole(message, "peak_bytes") > self._usable_bytes:
                    raise OutOfMemoryError(f"out of memory on GPU-0: {self._usable_bytes} bytes are usable")
            case "report":
                step = whole(message, "steps_done")
                if step < run[1]:
                    raise ProtocolError(f"step {step} is out of order: {run[1]} steps are done")
                for since in range(run[1] + 1, step + 1):
                    if connection in self._followers and since in self._shares:
                        connection.send(resize_message(self._shares[since]))
                run[1] = step
                if self.lost:
                    connection.send({"op": "lost", "resource": "GPU-0", "error": self.lost})
                return None
            case "release" | "finish":
                run[1] = max(run[1], whole(message, "steps_done"))
                self.ends[token].append(op)
        return {"ok": True}

    def _attach(self, connection: Connection, message: Message) -> Message:
        token = text(message, "token")
        runs = self.ranges.setdefault(token, [])
        self.ends.setdefault(token, [])
        known = runs[-1][1] if runs else 0
        steps_done = whole(message, "steps_done", known)
        if not runs or steps_done < known or self.ends[token][len(runs) - 1 :]:
            runs.append([steps_done, steps_done])
        runs[-1][1] = steps_done  # after a reconnect, the job's own number of steps is right
        self._tokens[connection] = token
        reply = {"ok": True, "version": 3, "job_id": token, "steps_done": steps_done, "shared": False}
        if message.get("host") is True:
            self._followers.add(connection)
            if (share := self._shares.get(0)) is not None:
                reply["host"] = {"cpu_milli": share.cpu_milli, "memory_bytes": share.memory_bytes}
        return reply | {"devices": self._devices}


@contextlib.contextmanager
def answering(path: Path, answer: Callable[[Connection, Message], Message | None]) -> Iterator[list[Message]]:
    """A socket at `path` that answers every request with `answer(connection, request)`, if that isn't None; it may raise an
    EmuGpuError. For tests of manager clients in other processes and languages. Yields the list of requests so far."""
    poller, requests, ended = Poller(), list[Message](), threading.Event()

    def on_message(connection: Connection, message: Message) -> None:
        requests.append(message)
        reply = answer(connection, message)
        if reply is not None:
            connection.send(reply)

    def serve() -> None:
        while not ended.is_set():
            poller.poll(None)

    poller.listen(path, on_message, lambda connection: None)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        ended.set()
        poller.call_soon(lambda: None)
        thread.join()
        poller.close()
