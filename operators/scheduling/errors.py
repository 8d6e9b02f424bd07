"""What a scheduler's loop may try again."""

from __future__ import annotations

from emulator_runtime.domain.errors import ClusterError


class NotYetError(ClusterError):
    """A job can't be started at the moment: it has changed, or the API server didn't take it."""

    code = "not-yet"
    retry_helps = True


class NoEmuJobsError(ClusterError):
    """The cluster has no EmuJobs at all: the chart isn't installed there."""

    code = "no-emujobs"
