"""Exit statuses that programs, their callers and the controllers agree on."""

from __future__ import annotations

import signal

EXIT_WRONG = 2
"""Wrong input, such as an option, a setting or a file: another attempt would end in the same way."""
EXIT_WRONG_IN_POD = 64  # EX_USAGE of sysexits.h
"""The same in a pod whose Job ends for good with this status (podFailurePolicy). Not 2: a container that is stopped while
`runc init` is still its first process ends with 2, because Go's runtime exits so after a signal that the kernel ignores for
process 1."""
EXIT_STOPPED = 128 + signal.SIGTERM
"""Stopped by a signal. A job has written its checkpoint."""
