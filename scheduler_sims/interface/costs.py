"""What a cluster's actions cost, in emulated seconds: charged by the simulator, realised as deadlines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class ClusterCosts:
    """Costs of scheduling actions (section `costs` of a cluster file), emulated seconds, all 0 by default."""

    submit_s: float = 0.0
    """From a submission until the scheduler hears of it."""
    serial_submit_s: float = 0.0
    """Of jobs submitted at the same instant the scheduler hears together, for each beyond the first so much later."""
    coalesce_s: float = 0.0
    """Events that come within this time after the first are handled together."""
    decide_s: float = 0.0
    """From the (coalesced) events until the plan takes effect."""
    start_s: float = 0.0
    """From the start action until the job can run its first step (pod, image, interpreter)."""
    restore_s: float = 0.0
    """Added to a start that resumes from a checkpoint."""
    warm_up_s: float = 0.0
    """Added to each start: the first step's warm-up (allocator, kernel selection)."""
    serial_start_s: float = 0.0
    """Cluster-wide, starts are served one after the other: of those at once the first is served at once, each further one so
    much later. Each task of a gang is one."""
    shared_start_s: float = 0.0
    """Starts share the machines: each takes so much longer for each other one of its plan, and later ones wait for all of it."""
    checkpoint_s: float = 0.0
    """On a stop: after the end of the current step, to write the checkpoint."""
    stop_s: float = 0.0
    """On a stop: after the checkpoint, until the devices are free."""
    serial_stop_s: float = 0.0
    """Cluster-wide, stops are told one after the other: of those at once the first job hears at once, each further one works
    on so much longer. A gang is one stop."""
    shared_stop_s: float = 0.0
    """Stops share the machines: until a job's devices are free it takes so much longer for each other stop of its plan."""
    finish_s: float = 0.0
    """From the end of a job's last step until its devices are free; its completion time doesn't contain it."""

    def begin_s(self, *, resumed: bool) -> float:
        """From the start action until the first step begins, when no other start is served before."""
        return self.start_s + self.warm_up_s + (self.restore_s if resumed else 0.0)

    def release_s(self) -> float:
        """From the end of the last step of a stopped job until its devices are free."""
        return self.checkpoint_s + self.stop_s


COST_NAMES = tuple(f.name for f in fields(ClusterCosts))
