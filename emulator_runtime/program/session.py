"""One process of a job, with the container's emulated GPUs.

    from emugpu import gpu

    session = gpu.Session()
    device = session.device()               # that of LOCAL_RANK, as torchrun sets it, or the first one
    weights = device.allocate(2 * gpu.GIB)  # out of memory as the real device would be
    stream = device.stream()
    for step in session.steps(100):         # continues where the job was; ends early when the job is to stop
        stream.launch(0.02)                 # 20 ms of the device; returns at once
        load_the_next_batch()               # meanwhile
        stream.synchronize()

Several processes may run in a container, each with a session (`torchrun --nproc-per-node 8`); that of local rank 0 speaks for
the container: it counts the steps and ends the run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from types import TracebackType

from emulator_runtime.domain.errors import InputError, RefusedError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.client import PATIENCE_S, ManagerClient
from emulator_runtime.node.layout import VISIBLE_DEVICES_VARIABLE
from emulator_runtime.program.device import Device
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from emulator_runtime.timing.own_time import OwnTime
from emulator_runtime.workloads.pod import pod_access, whole_variable

_PAUSE_NS = NS_PER_S // 10
"""Between two attempts to join a run."""


class Session:
    """This process. `environ`: None means the process's own environment. Raises InputError in a container without emulated GPUs;
    its methods raise the errors of the sharing manager (RefusedError, DeviceLostError, ManagerUnavailableError).

    Use it as a context manager, or call `close`; a process that ends without that loses nothing but its unfinished work.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._access = pod_access(environ)
        visible = environ.get(VISIBLE_DEVICES_VARIABLE, "")
        self._count = len([device for device in visible.split(",") if device])
        self.rank = whole_variable(environ, ("RANK", "EMUGPU_RANK", "JOB_COMPLETION_INDEX"), 0)
        self.local_rank = whole_variable(environ, ("LOCAL_RANK",), 0)
        self._time = OwnTime(HostClock.of_host())
        self._devices: dict[int, Device] = {}
        self._name = f"rank {self.rank}, {secrets.token_hex(6)}"
        self._main = self._connected(session="", only=()) if self.local_rank == 0 else None
        self.steps_done = 0 if self._main is None else self._main.steps_done
        """Finished steps of the job. A process that doesn't speak for the job knows them when it uses its first device."""

    def __len__(self) -> int:
        """Number of the container's devices."""
        return self._count

    def device(self, index: int | None = None) -> Device:
        """A device of the container, by its place; None: that of the local rank. Other processes may use it, too: then they take
        turns. Raises InputError if there is no such device."""
        if index is None:
            index = self.local_rank % max(1, self._count)
        if not 0 <= index < self._count:
            raise InputError("device", f"there is no device {index}; this container has {self._count}")
        if index not in self._devices:
            client = self._connected(session=f"{self._name} {index}", only=(index,))
            self._devices[index] = Device(client, client.devices[0], self._time, index)
            if self._main is None:
                self.steps_done = max(self.steps_done, client.steps_done)
        return self._devices[index]

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the job's steps from the first that isn't done up to `total`. After each, the devices are waited for,
        and the process that speaks for the job reports it. If the job is asked to stop, the numbers end after the present step,
        and the devices are released; otherwise the job is reported as finished after the last one.

        Processes of one job must agree on the first step themselves, by a barrier, as on everything that they do together. After
        the end, what they still launch takes its time, but isn't accounted.
        """
        if total < 0:
            raise InputError("total", f"a job can't have {total} steps; give 0 or more")
        if self._main is None:
            self.device()
        while self.steps_done < total:
            yield self.steps_done
            self.synchronize()
            self.steps_done += 1
            if self._main is not None:
                self._main.report(self.steps_done)
            if self.stopping and self.steps_done < total:
                break
        if self._main is not None:
            (self._main.finish if self.steps_done >= total else self._main.release)(self.steps_done)

    @property
    def stopping(self) -> bool:
        """Whether the job has been asked to end its run, for example because a scheduler preempts it."""
        return (self._main is not None and self._main.stopping) or any(d.stopping for d in self._devices.values())

    def synchronize(self) -> None:
        """Wait until all devices have done what was launched."""
        for device in self._devices.values():
            device.synchronize()

    def close(self) -> None:
        """Give up the devices."""
        for device in self._devices.values():
            device.close()
        if self._main is not None:
            self._main.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self, session: str, only: tuple[int, ...]) -> ManagerClient:
        """Attached. A further process waits until the main one has begun the run."""
        give_up_ns = monotonic_ns() + round(PATIENCE_S * NS_PER_S)
        while True:
            client = ManagerClient(self._access.manager, self._access.token, session=session, only=only)
            try:
                client.attach()
                return client
            except RefusedError:
                client.close()
                if not (session and client.ended in ("finished", "released")) or monotonic_ns() > give_up_ns:
                    raise
            sleep_ns(_PAUSE_NS)
