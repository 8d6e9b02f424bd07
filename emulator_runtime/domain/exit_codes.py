"""Exit statuses that programs, their callers and the controllers agree on."""

from __future__ import annotations

import signal

EXIT_WRONG = 2
"""Wrong input, such as an option, a setting or a file: another attempt would end in the same way."""
EXIT_STOPPED = 128 + signal.SIGTERM
"""Stopped by a signal. A job has written its checkpoint."""
