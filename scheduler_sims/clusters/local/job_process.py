"""The process of one job: started ahead of time, waits for orders of the cluster, reports how each run ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection, Poller
from emulator_runtime.workloads.order import RunOrder
from scheduler_sims.clusters.local.processes import FD, Child, ForkServer

MODULE = "emulator_runtime.workloads.__main__"
OnMessage = Callable[[str, Message], None]
OnDeath = Callable[[str, str], None]


class JobProcess:
    """The process that will run (and, after a preemption, run again) one job."""

    def __init__(
        self,
        server: ForkServer,
        job_id: str,
        log: Path,
        environment: Mapping[str, str],
        poller: Poller,
        on_message: OnMessage,
        on_death: OnDeath,
    ) -> None:
        self.job_id = job_id
        self.ready = False
        self._outstanding = 0
        self._closing = False
        self._on_message = on_message
        self._on_death = on_death
        self._child = Child(server, MODULE, log, environment, ["--standby", FD])
        self._connection = Connection(poller, self._child.socket, self._message, self._closed)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def running(self) -> bool:
        """Whether it has a run whose end it hasn't reported."""
        return self._outstanding > 0

    def run(self, order: RunOrder) -> None:
        """Send the process a run, which it begins after its previous one: a job may be started again as soon as its manager has
        reported the stop, before the process has."""
        self._outstanding += 1
        self._connection.send(order.to_message())

    def ended(self) -> None:
        """The process has reported the end of a run."""
        self._outstanding -= 1

    def send(self, message: Message) -> None:
        self._connection.send(message)

    def terminate(self) -> None:
        self._closing = True
        self._connection.close()
        self._child.terminate()

    def kill_after(self, timeout_s: float) -> None:
        self._child.kill_after(timeout_s)

    def _message(self, _: Connection, message: Message) -> None:
        self._on_message(self.job_id, message)

    def _closed(self, _: Connection) -> None:
        if not self._closing:
            self._on_death(self.job_id, self._child.exit_description())
