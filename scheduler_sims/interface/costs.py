"""The costs of scheduling actions: the simulator charges them, the local cluster realises them as deadlines."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class ClusterCosts:
    """Costs of scheduling actions (section `costs` of a cluster file), emulated seconds, all 0 by default."""

    submit_s: float = 0.0
    """From a submission until the scheduler learns of it."""
    serial_submit_s: float = 0.0
    """Added to `submit_s` for each further job of the same instant; the scheduler learns of all of them together.

    Example: of 5 jobs submitted at 10 s the scheduler learns at 10 + submit_s + 4 * serial_submit_s.
    """
    coalesce_s: float = 0.0
    """Events within this time after the first one are handled as one decision."""
    decide_s: float = 0.0
    """From the (coalesced) events until the plan takes effect."""
    start_s: float = 0.0
    """From the start action until the job can run its first step (pod, image, interpreter)."""
    restore_s: float = 0.0
    """Added to a start that resumes from a checkpoint."""
    warm_up_s: float = 0.0
    """Added to each start: the first step's warm-up (allocator, kernel selection)."""
    serial_start_s: float = 0.0
    """The whole cluster serves starts one after the other, this far apart; each task of a gang is one start.

    Example: of 4 one-task jobs started at once the last one is served 3 * serial_start_s after the first.
    """
    shared_start_s: float = 0.0
    """Starts of one plan share the machines: each takes this much longer for each other start of the plan. Starts of later
    plans wait until those of earlier plans are over."""
    checkpoint_s: float = 0.0
    """On a stop: after the end of the current step, to write the checkpoint."""
    stop_s: float = 0.0
    """On a stop: after the checkpoint, until the devices are free."""
    serial_stop_s: float = 0.0
    """The whole cluster delivers stops one after the other, this far apart; a job continues until its stop arrives. A gang is
    one stop."""
    shared_stop_s: float = 0.0
    """Stops of one plan share the machines: until a job's devices are free, added for each other stop of the plan."""
    finish_s: float = 0.0
    """From the end of a job's last step until its devices are free; not part of its JCT."""
    host_slots: float = 0.0
    """How many starts (`start_s`, `restore_s`) and ends (`finish_s`) of jobs the machines carry out at full speed, a number and
    not seconds; more of them share the machines equally. 0: any number. At least 1 otherwise, without `shared_start_s`, and
    only simulated: when a start is over depends on what begins after it.

    Example: start_s 2, host_slots 1.5: the first steps of three jobs started at once begin after 4 s.
    """
    program_start_s: float = 0.0
    """Added to each start of a program, beside `start_s` of its profile: its image, and what starts it in its container. That
    shares the machines, too (`program_slots`). Only simulated."""
    program_slots: float = 0.0
    """How many runs of programs that are starting (imports, building the model: `start_s` of their profiles) the machines carry
    out at full speed, a number and not seconds: about the cores that they have in common. More of them share the machines
    equally. 0: any number. Only simulated: on a cluster programs do so by themselves."""

    def problem(self) -> tuple[str, str] | None:
        """The name of the cost that is wrong, and the problem with its fix; None if all are right."""
        for name in SLOTS:
            if 0 < (slots := getattr(self, name)) < 1:
                return name, f"must be 0 (any number) or at least 1, not {slots:g}"
        if self.host_slots and self.shared_start_s:
            both = "both say how starts share the machines; leave one of them out"
            return "host_slots", f"can't stand beside shared_start_s: {both}"
        return None

    def begin_s(self, *, resumed: bool) -> float:
        """From the start action until the first step begins, if no other start is served first."""
        return self.start_s + self.warm_up_s + (self.restore_s if resumed else 0.0)

    def release_s(self) -> float:
        """From the end of the last step of a stopped job until its devices are free."""
        return self.checkpoint_s + self.stop_s


SLOTS = ("host_slots", "program_slots")
"""The costs that are numbers; all others are seconds."""
COST_NAMES = tuple(f.name for f in fields(ClusterCosts))
