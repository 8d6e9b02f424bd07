"""Ctrl-C (or SIGTERM, or a closed terminal) ends a command once; cleaning up takes a second or two and isn't interrupted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 10
"""After this time SIGTERM ends the program at once: a bare `except:`, such as in a policy, may have caught the interrupt."""


@contextmanager
def interruptible_once() -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt, further ones are ignored (SIGTERM for PATIENCE_S): the program is
    about to end."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda _number, _frame: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        signal.alarm(PATIENCE_S)
        raise KeyboardInterrupt

    if current_thread() is not main_thread():
        yield  # only the main thread may handle signals; whoever runs us elsewhere does
        return
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        if not isinstance(sys.exception(), KeyboardInterrupt):
            signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
