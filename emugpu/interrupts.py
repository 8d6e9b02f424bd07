"""Ctrl-C (or SIGTERM, or a closed terminal) ends a command once; cleaning up takes a second or two and isn't interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible_once() -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt, further ones are ignored: the program is about to end."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if current_thread() is not main_thread():
        yield  # only the main thread may handle signals; whoever runs us elsewhere does
        return
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        _set(before)
        raise
    _set(before)


def _set(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
