"""The one error tree. Each class answers: does a retry help?

EmuGpuError
 |- InputError              the user's file, flag or row is wrong: names the place and the fix
 |   `- UnknownNameError    a name that isn't in a table: lists the nearest ones
 |- BeyondProfileError      a batch size above the largest one that was measured
 |- OutOfMemoryError        a device doesn't have the memory that a job asks for
 |- DeviceLostError         a device is unhealthy or no longer exists
 |- RefusedError            the sharing manager refused a request (unknown token, device of another grant, second owner)
 |- ProtocolError           a peer sent bytes that don't follow the protocol
 |- PolicyError             a policy's plan can't be carried out
 |- LateError               a strict clock missed a deadline
 |- ClusterError            a cluster could not be started or kept running
 |- BuildError              the emulated CUDA libraries can't be compiled
 |- DeadlockError           the ranks of a trace wait for each other, or for what never happens
 `- ManagerUnavailableError the sharing manager doesn't answer                   (a retry helps)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from emulator_runtime.domain.wording import quoted


class EmuGpuError(Exception):
    """Base class of all errors that emugpu raises on purpose."""

    code = "error"
    retry_helps = False


class InputError(EmuGpuError):
    """The user's input is wrong. The message starts with `place` (file:line, flag, field path) and says the fix."""

    code = "input"

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place


class UnknownNameError(InputError):
    """A name that doesn't exist in a table; the message lists the most similar names."""

    code = "unknown-name"

    def __init__(self, place: str, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
        super().__init__(place, f"unknown {kind} {quoted(name)}; {hint}")


class BeyondProfileError(EmuGpuError):
    """The batch size (per GPU) is above the largest measured one, and the caller did not allow extrapolation.

    `what` was measured at batch sizes `first` to `last`. A caller whose users can't allow extrapolation writes its own
    message from these attributes.
    """

    code = "beyond-profile"

    def __init__(self, what: str, first: int, last: int, batch_size: int) -> None:
        super().__init__(
            f"{what} was measured at batch sizes {first} to {last}, not at {batch_size}; "
            f"choose one of those or ask for extrapolation (--extrapolate, extrapolate=True)"
        )
        self.what, self.first, self.last, self.batch_size = what, first, last, batch_size


class OutOfMemoryError(EmuGpuError):
    """A device doesn't have enough memory; the message says who asked for how much, what is free and who holds the rest."""

    code = "out-of-memory"


class DeviceLostError(EmuGpuError):
    """A granted device is unhealthy or no longer exists; the message says which and why. The job must restart elsewhere."""

    code = "device-lost"


class RefusedError(EmuGpuError):
    """The sharing manager refused a request; a retry gets the same answer."""

    code = "refused"


class ProtocolError(EmuGpuError):
    """A peer sent bytes that don't follow the protocol: frame length, JSON, missing fields or fields of a wrong type."""

    code = "protocol"


class PolicyError(EmuGpuError):
    """A scheduling policy failed, or its plan can't be carried out on this cluster."""

    code = "policy"


class LateError(EmuGpuError):
    """A wait on a strict clock ended later than the clock's limit allows."""

    code = "late"


class ClusterError(EmuGpuError):
    """A cluster could not be started or kept running."""

    code = "cluster"


class BuildError(EmuGpuError):
    """The emulated CUDA libraries can't be compiled: there is no compiler, or it reports an error, which the message has."""

    code = "build"


class DeadlockError(EmuGpuError):
    """A trace can't be replayed to its end: ranks wait for each other, or for a moment that never comes; the message names
    the ranks and their calls."""

    code = "deadlock"


class ManagerUnavailableError(EmuGpuError):
    """The sharing manager does not answer; it may be restarting."""

    code = "manager-unavailable"
    retry_helps = True
