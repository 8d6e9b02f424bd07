"""What a job demands of its node beside devices: for the input of its next step, and for the exchange of the present one.

A stage is demanded as soon as the end of the one before it is known, so the client goes on with the stages whenever it reads
messages of the manager, also while it waits for a device.
"""

from __future__ import annotations

from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.stages import HostResource, StageRun
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.fields import mappings, text, texts
from emulator_runtime.ipc.frames import Message


class StageDemands:
    """The stages of a run on one node. `resources`: what the node's manager divides among jobs, as far as this job may use it."""

    def __init__(self) -> None:
        self.resources: tuple[HostResource, ...] = ()
        self.input: StageRun | None = None
        self.exchange: StageRun | None = None

    def take(self, reply: Message) -> None:
        """Apply the reply to attach. What the node has no longer is the job's own from now on. Raises ProtocolError."""
        entries = mappings(reply, "resources")
        self.resources = tuple(HostResource(text(e, "name"), devices=tuple(texts(e, "devices"))) for e in entries)
        names = {resource.name for resource in self.resources}
        for run in self._runs():
            while gone := run.outstanding.keys() - names:
                name = min(gone)
                run.served(name, run.ready_ns + run.outstanding[name])

    def begin_input(self, step: int, times: StepTimes, ready_ns: int, devices: list[str]) -> list[Message]:
        """The demands with which the input of a step begins, for these devices."""
        self.input = StageRun(step, times.stages.input(times.input_ns, self.resources, devices), ready_ns)
        return _demands(self.input)

    def begin_exchange(self, step: int, times: StepTimes, ready_ns: int) -> list[Message]:
        """The demands with which the exchange of a step begins."""
        self.exchange = StageRun(step, times.stages.exchange(self.resources), ready_ns)
        return _demands(self.exchange)

    def outstanding(self) -> list[Message]:
        """The demands that haven't been answered."""
        return [message for run in self._runs() for message in _demands(run)]

    def served(self, resource: str, step: int, piece: Lease) -> list[Message]:
        """The answer to a demand; the demands that follow from it."""
        return [
            message
            for run in self._runs()
            if run.step == step and run.served(resource, piece.end_ns)
            for message in _demands(run)
        ]

    def _runs(self) -> list[StageRun]:
        return [run for run in (self.input, self.exchange) if run is not None]


def _demands(run: StageRun) -> list[Message]:
    demand: Message = {"op": "demand", "sequence": run.step, "ready_ns": run.ready_ns}
    return [demand | {"work_ns": work_ns, "resource": name} for name, work_ns in run.outstanding.items()]
