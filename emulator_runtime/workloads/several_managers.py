"""The managers of all nodes of a gang, used like one: a step ends when it has ended on every node, and so does a run.

A single process emulates all tasks of a gang here. Messages between tasks take no emulated time beyond the step time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.client import ManagerClient, Messages
from emulator_runtime.workloads.order import RunOrder


class SeveralManagers:
    """One client for each node, in the order of the nodes. Raises what the clients raise."""

    def __init__(self, clients: Sequence[ManagerClient]) -> None:
        self._clients = clients
        for client in clients:
            client.beside = tuple(other for other in clients if other is not client)

    @classmethod
    def of(cls, order: RunOrder, messages: Messages | None = None) -> SeveralManagers:
        """The clients for an order; a job on one node has one. `messages`: how they wait for answers."""
        grants = ((order.manager, order.token), *order.others)
        return cls([ManagerClient(path, token, order.job_id, messages=messages) for path, token in grants])

    @property
    def reconnects(self) -> int:
        return sum(client.reconnects for client in self._clients)

    def attach(self, steps_done: int) -> None:
        for client in self._clients:
            client.attach(steps_done)

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        for client in self._clients:
            client.reserve(persistent_bytes, peak_bytes)

    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None:
        for client in self._clients:
            client.queue(step, duration_ns, issue_ns, remaining_ns)

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease:
        """From the earliest start to the latest end. Any node may stop the run; leases of other nodes for it stay unused."""
        for client in self._clients:
            client.demand(step, duration_ns, issue_ns, remaining_ns)
        leases = []
        for client in self._clients:
            leases.append(client.lease(step, duration_ns, issue_ns, remaining_ns))
            if leases[-1].stop:
                return leases[-1]
        return Lease(min(lease.start_ns for lease in leases), max(lease.end_ns for lease in leases))

    def prefetch(self, step: int, times: StepTimes, ready_ns: int) -> None:
        for client in self._clients:
            client.prefetch(step, times, ready_ns)

    def exchange(self, step: int, times: StepTimes, ready_ns: int) -> None:
        for client in self._clients:
            client.exchange(step, times, ready_ns)

    def prefetched_ns(self) -> int:
        return max(client.prefetched_ns() for client in self._clients)

    def exchanged_ns(self) -> int:
        return max(client.exchanged_ns() for client in self._clients)

    def release(self, steps_done: int) -> None:
        self._call_all(lambda client: client.release(steps_done))

    def finish(self, steps_done: int) -> None:
        self._call_all(lambda client: client.finish(steps_done))

    def fail(self, reason: str) -> None:
        self._call_all(lambda client: client.fail(reason))

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _call_all(self, call: Callable[[ManagerClient], None]) -> None:
        """Call each client, even if others fail. Raises the first error."""
        errors: list[EmuGpuError] = []
        for client in self._clients:
            try:
                call(client)
            except EmuGpuError as error:
                errors.append(error)
        if errors:
            raise errors[0]
