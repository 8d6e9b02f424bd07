"""Making room for a job by stopping others: as few as possible, the least deserving first, and nobody moves.

The textbook way (empty the cluster in thought and fill it again in order) may hand a running job's devices to another
one although both fit, and every such move costs a checkpoint and a restart. Here running jobs stay where they are, and
a waiting job takes the devices of those that rank behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from emulator_runtime.domain.job import Configuration
from scheduler_sims.plan import Allocation
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.view import JobView, Phase


class Room:
    """Free space, what stopping jobs are about to free, and the jobs that may be stopped.

    `victims` come in the order in which they are to be stopped. `stopped` collects those that are.
    """

    def __init__(self, space: FreeSpace, holders: Sequence[JobView], victims: Sequence[JobView]) -> None:
        self._space = space
        self._stopping = [job for job in holders if job.phase is Phase.STOPPING]
        self._victims = list(victims)
        self.stopped: list[JobView] = []

    def place(self, configuration: Configuration, outranks: Callable[[JobView], bool]) -> Allocation | None:
        """Room for `configuration`: free, else being freed, else of victims, up to the first that isn't outranked.

        The devices of a stopping job or a victim are not free yet; the plan may name them all the same.
        """
        allocation = self._space.place(configuration)
        if allocation is not None:
            return allocation
        released: list[JobView] = []
        for job, holding in self._candidates(outranks):
            self._space.release(holding)
            released.append(job)
            allocation = self._place_on(configuration, holding)
            if allocation is not None:
                break
        self._settle(released)
        return allocation

    def _candidates(self, outranks: Callable[[JobView], bool]) -> Iterator[tuple[JobView, Allocation]]:
        for job in (*self._stopping, *self._victims):
            if job.phase is not Phase.STOPPING and not outranks(job):
                return
            if job.allocation is not None:
                yield job, job.allocation

    def _place_on(self, configuration: Configuration, released: Allocation) -> Allocation | None:
        """A place on the nodes that `released` was on; there was none elsewhere."""
        for node in dict.fromkeys(released.nodes):
            allocation = self._space.place(configuration, node=node)
            if allocation is not None:
                return allocation
        return None

    def _settle(self, released: list[JobView]) -> None:
        """Those whose place wasn't needed keep it, the most deserving first; the others are stopped."""
        for job in reversed(released):
            if job.allocation is not None and self._space.has_room(job.allocation):
                self._space.take(job.allocation)
            elif job.phase is Phase.STOPPING:
                self._stopping.remove(job)
            else:
                self._victims.remove(job)
                self.stopped.append(job)
