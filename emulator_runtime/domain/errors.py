"""The one error tree. Each class answers: does a retry help?

EmuGpuError
 |- InputError              the user's file, flag or row is wrong: names the place and the fix
 |   `- UnknownNameError    a name that isn't in a table: lists the nearest ones
 |- BeyondProfileError      a batch size past the last measured point
 |- OutOfMemoryError        a device can't hold what was asked
 |- DeviceLostError         a device is unhealthy or gone
 |- RefusedError            the sharing manager said no (unknown token, foreign device, second owner)
 |- ProtocolError           bytes on a socket that are not the contract
 |- PolicyError             a policy's plan can't be carried out
 |- LateError               a strict clock missed a deadline
 |- ClusterError            a cluster could not be brought up or kept alive
 `- ManagerUnavailableError the sharing manager is away                          (a retry helps)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from emulator_runtime.domain.wording import quoted


class EmuGpuError(Exception):
    """Base of all errors that emugpu raises on purpose."""

    code = "error"
    retry_helps = False


class InputError(EmuGpuError):
    """What the user gave is wrong; `place` (file:line, flag, field path) and the fix are in the message."""

    code = "input"

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place


class UnknownNameError(InputError):
    """A name that is in no table; the message lists what comes nearest."""

    code = "unknown-name"

    def __init__(self, place: str, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names) or 'none'}"
        super().__init__(place, f"unknown {kind} {quoted(name)}; {hint}")


class BeyondProfileError(EmuGpuError):
    """A batch size (per GPU) beyond the last measured point, and the caller did not ask for extrapolation.

    `what` was measured at `first` to `last`, for those who can't ask for it and must say another fix.
    """

    code = "beyond-profile"

    def __init__(self, what: str, first: int, last: int, batch_size: int) -> None:
        super().__init__(
            f"{what} was measured at batch sizes {first} to {last}, not at {batch_size}; "
            f"choose one of those or ask for extrapolation (--extrapolate, extrapolate=True)"
        )
        self.what, self.first, self.last, self.batch_size = what, first, last, batch_size


class OutOfMemoryError(EmuGpuError):
    """A device can't hold what was asked; says what asked, what is free and who holds the rest."""

    code = "out-of-memory"


class DeviceLostError(EmuGpuError):
    """A device that was granted is unhealthy or gone; says which, and why. The job must start anew, elsewhere."""

    code = "device-lost"


class RefusedError(EmuGpuError):
    """The sharing manager refused a request; asking again gives the same answer."""

    code = "refused"


class ProtocolError(EmuGpuError):
    """Bytes on a socket that are not the contract (frame length, JSON, missing or mistyped fields)."""

    code = "protocol"


class PolicyError(EmuGpuError):
    """A scheduling policy failed, or asked for something that the cluster can't do."""

    code = "policy"


class LateError(EmuGpuError):
    """A strict clock returned from a wait later than allowed."""

    code = "late"


class ClusterError(EmuGpuError):
    """A cluster could not be started or kept alive."""

    code = "cluster"


class ManagerUnavailableError(EmuGpuError):
    """The sharing manager does not answer; it may be restarting."""

    code = "manager-unavailable"
    retry_helps = True
