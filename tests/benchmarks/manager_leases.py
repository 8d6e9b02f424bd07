"""Leases per second and round trips of the sharing manager, beside the same exchange over RabbitMQ in the same run.

The manager is the real daemon with 64 devices; each client is a process of its own that attaches with its token and uses its
own device back to back. "ours": a lease of each step, as clients of version 2 ask for it. "ours, reported": the device is the
client's own, and the manager gets reports. "ours, shared": the devices may be shared, so each step is a demand that the manager
answers when the device's mode has decided. "one core": everything that serves (the manager; broker and manager) shares one
core, the clients have the others. CPU is what the serving processes burn for one lease; it says what a machine with nothing
else to do would reach, where leases per second also suffer from other load. The peer's settings are in `rabbitmq_peer`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.lease import Lease
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.client import ManagerClient
from emulator_runtime.ipc.fields import whole
from emulator_runtime.ipc.replies import raise_for
from scheduler_sims.clusters.local.processes import END_S, Child, ForkServer

NODE, DEVICES = "bench", 64
LEASE_NS = 1_000
"""Shorter than a round trip: the manager refuses a step that is asked for before the step before it has ended."""
CLIENTS = (1, 16, 64)
WARM_UP_S = 0.2
TARGET_LEASES_PER_S, TARGET_RATIO, TARGET_CLIENTS = 10_000, 5, 16
OURS, REPORTED, SHARED = "ours", "ours, reported", "ours, shared"


class LeaseClient(Protocol):
    """One job's side of an exchange, in a process of its own."""

    def attach(self, steps_done: int) -> None: ...

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease: ...

    def finish(self, steps_done: int) -> None: ...


class Design(Protocol):
    """A way to exchange leases, already running."""

    name: str

    def pids(self) -> list[int]:
        """The processes that serve."""
        ...

    def grant(self, job_id: str, device: str) -> str:
        """The token of a new grant."""
        ...

    def connect(self, job_id: str, token: str) -> LeaseClient:
        """Called in the client's process."""
        ...


@dataclass
class Figures:
    """What was measured of one design, over all rounds; times in nanoseconds of the host."""

    rates: list[float] = field(default_factory=list)
    trips: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def per_s(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu_us(self) -> float:
        return self.cpu_s * 1e6 / len(self.trips)

    def trip_us(self, share: float) -> float:
        return sorted(self.trips)[int(share * (len(self.trips) - 1))] / 1000


def main(argv: list[str]) -> int:
    """Print the table and the targets beside it; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks manager_leases", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 and 16 clients, one short round each, one core only")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each design (default 3; the median counts)")
    parser.add_argument("--round-s", type=float, default=1.0, help="seconds that one turn measures (default 1)")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing outlives a stopped benchmark
    if options.quick:
        options.rounds, options.round_s = 1, 0.5
    cores = sorted(os.sched_getaffinity(0))
    print(f"{len(cores)} cores, load average {os.getloadavg()[0]:.1f}, {options.rounds} x {options.round_s:g} s each")
    if len(cores) < 2:
        print("one core: skipped, there is no second core for the clients")
    else:
        measure("one core", {cores[-1]}, set(cores[:-1]), options)
    if not options.quick or len(cores) < 2:
        measure("unpinned", set(cores), set(cores), options)
    return 0


def measure(pinning: str, server_cores: set[int], client_cores: set[int], options: argparse.Namespace) -> None:
    """One block of the table: all designs, each number of clients."""
    with ExitStack() as stack:
        designs = start_designs(stack, server_cores)
        print(
            f"\n{pinning:10}{'clients':>8}  {'':24}{'leases/s':>10}{'p50 us':>9}{'p99 us':>9}{'CPU us':>8}   ours over it"
        )
        for clients in CLIENTS[: 2 if options.quick else None]:
            figures = {design.name: Figures() for design in designs}
            for number in range(options.rounds):
                for design in designs:  # they take turns, so that a disturbance of the machine hits all of them
                    run_round(
                        design, clients, client_cores, options.round_s, f"{clients}-{number}", figures[design.name]
                    )
            print_block(pinning, clients, figures)


def start_designs(stack: ExitStack, cores: set[int]) -> list[Design]:
    """Start what serves on `cores`; without RabbitMQ one line says what is missing."""
    directory = Path(tempfile.mkdtemp(prefix="emugpu-bench-", dir="/tmp"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    inventory = [{"index": index, "gpu_type": "A100", "memory_bytes": 40 * 2**30} for index in range(DEVICES)]
    (directory / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    designs: list[Design] = []
    with affinity(
        cores
    ):  # inherited by all that is started here: an Erlang VM starts as many schedulers as it has cores
        designs += [
            OurManager(stack, directory, OURS, "exclusive", ClientOfVersion2),
            OurManager(stack, directory, REPORTED, "exclusive", ManagerClient),
            OurManager(stack, directory, SHARED, "fifo", ManagerClient),
        ]
        try:
            from tests.benchmarks import rabbitmq_peer

            designs += rabbitmq_peer.start(stack, directory, NODE)
        except (ImportError, FileNotFoundError) as error:
            print(f"RabbitMQ: skipped, {error}; it needs `pip install pika` and `apt-get install rabbitmq-server`")
    return designs


class ClientOfVersion2:
    """Asks for a lease of each step."""

    def __init__(self, path: Path, token: str, job_id: str) -> None:
        self._channel = Channel.connect(path)
        self._attachment = {"op": "attach", "version": 2, "token": token, "job_id": job_id}

    def attach(self, steps_done: int) -> None:
        raise_for(self._channel.request(self._attachment | {"steps_done": steps_done}))

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease:
        request = {"op": "lease", "step": step, "duration_ns": duration_ns, "issue_ns": issue_ns}
        reply = raise_for(self._channel.request(request))
        return Lease(whole(reply, "start_ns"), whole(reply, "end_ns"))

    def finish(self, steps_done: int) -> None:
        raise_for(self._channel.request({"op": "finish", "steps_done": steps_done}))


class OurManager:
    """The daemon, started as the local cluster starts it."""

    def __init__(
        self,
        stack: ExitStack,
        directory: Path,
        name: str,
        sharing: str,
        client: Callable[[Path, str, str], LeaseClient],
    ) -> None:
        self.name, self._directory, self._client = name, directory / name.replace(", ", "-"), client
        environment = {
            "EMUGPU_MANAGER_NODE": NODE,
            "EMUGPU_MANAGER_INVENTORY": str(directory / "inventory.json"),
            "EMUGPU_MANAGER_SOCKET_DIR": str(self._directory),
            "EMUGPU_MANAGER_STATE_DIR": str(self._directory / "state"),
            "EMUGPU_MANAGER_SHARING": sharing,
        }
        self._directory.mkdir()
        server = ForkServer(["sharing_manager.__main__"], self._directory / "fork-server")
        stack.callback(server.close)
        variable = "EMUGPU_MANAGER_LIFELINE_FD"
        self._child = Child(
            server, "sharing_manager.__main__", self._directory / "stderr", environment, fd_variable=variable
        )
        stack.callback(self._child.kill_after, END_S)
        stack.callback(self._child.terminate)
        self._admin = self._connect_admin()
        stack.callback(self._admin.close)

    def _connect_admin(self) -> Channel:
        while True:
            try:
                return Channel.connect(self._directory / "admin.sock")
            except ManagerUnavailableError:
                if not self._child.alive:
                    raise SystemExit(f"the manager did not start: {self._child.exit_description()}") from None
                time.sleep(0.01)

    def pids(self) -> list[int]:
        return [self._child.pid]

    def grant(self, job_id: str, device: str) -> str:
        return str(raise_for(self._admin.request({"op": "grant", "job_id": job_id, "devices": [device]}))["token"])

    def connect(self, job_id: str, token: str) -> LeaseClient:
        return self._client(self._directory / "manager.sock", token, job_id)


# ---- one round


def run_round(design: Design, count: int, cores: set[int], seconds: float, tag: str, into: Figures) -> None:
    """Let `count` client processes ask for leases for `seconds`; the grants end with the round."""
    context = multiprocessing.get_context("fork")
    clients = []
    for index in range(count):
        job_id = f"{design.name}-{tag}-{index}"
        token = design.grant(job_id, device_uuid(NODE, index))
        ours, theirs = context.Pipe()
        process = context.Process(target=run_client, args=(design, job_id, token, cores, theirs), daemon=True)
        process.start()
        theirs.close()
        clients.append((process, ours))
    for _, pipe in clients:
        receive(pipe)  # ready
    start_ns = time.perf_counter_ns() + round(WARM_UP_S * 1e9)
    end_ns = start_ns + round(seconds * 1e9)
    for _, pipe in clients:
        pipe.send((start_ns, end_ns))
    cpu_s = [cpu_at(moment_ns, design.pids()) for moment_ns in (start_ns, end_ns)]
    trips = [trip for _, pipe in clients for trip in receive(pipe)]
    for process, _ in clients:
        process.join()
    into.rates.append(len(trips) / seconds)
    into.trips += trips
    into.cpu_s += cpu_s[1] - cpu_s[0]


def receive(pipe: Connection) -> Any:
    """What a client sends next. Ends the benchmark where the client died."""
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit("a client ended early; its traceback is above") from None


def run_client(design: Design, job_id: str, token: str, cores: set[int], pipe: Connection) -> None:
    """A job that does nothing but ask; sends the round trips (ns) that lie within the window."""
    os.sched_setaffinity(0, cores)
    client = design.connect(job_id, token)
    client.attach(0)
    pipe.send("ready")
    start_ns, end_ns = pipe.recv()
    trips, step, after_ns = [], 0, 0
    while after_ns < end_ns:
        before_ns = time.perf_counter_ns()
        client.lease(step, LEASE_NS, time.monotonic_ns())  # without a shared clock the manager's time is the host's
        after_ns = time.perf_counter_ns()
        if before_ns >= start_ns and after_ns < end_ns:
            trips.append(after_ns - before_ns)
        step += 1
    client.finish(step)
    pipe.send(trips)


def cpu_at(moment_ns: int, pids: list[int]) -> float:
    """Seconds of CPU time that these processes have used at `moment_ns` (proc_pid_stat(5): fields 14 and 15)."""
    time.sleep(max(0, moment_ns - time.perf_counter_ns()) / 1e9)
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def affinity(cores: set[int]) -> Iterator[None]:
    """Run on `cores`, and what is started in here for its whole life."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- the table


def print_block(pinning: str, clients: int, figures: dict[str, Figures]) -> None:
    """The lines of one number of clients; the ratios are ours over the line's design."""
    ours = figures[OURS]
    for name, own in figures.items():
        numbers = f"{own.per_s:10,.0f}{own.trip_us(0.5):9.0f}{own.trip_us(0.99):9.0f}{own.cpu_us:8.1f}"
        ratios = (
            ""
            if own is ours
            else f"   {ours.per_s / own.per_s:5.1f} x leases/s, {own.cpu_us / ours.cpu_us:5.1f} x less CPU"
        )
        print(f"{pinning:10}{clients:>8}  {name:24}{numbers}{ratios}", flush=True)
    if pinning == "one core" and clients == TARGET_CLIENTS:
        best = max((own.per_s for name, own in figures.items() if name not in (OURS, REPORTED, SHARED)), default=None)
        print(f"target: {TARGET_LEASES_PER_S:,} leases/s on one core, reached: {ours.per_s:,.0f}")
        if best is not None:
            print(f"target: {TARGET_RATIO} x the better RabbitMQ exchange, reached: {ours.per_s / best:.1f} x")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
