"""Files that are there whole or not at all: written beside their place and renamed, so that no reader sees half of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, unfinished: Path | None = None) -> Iterator[Path]:
    """A path in the same directory to fill; what is there when the block ends takes the place of `path`.

    `unfinished`: that path, by default `path` with `.new` behind it. Writers that may meet need different ones. What a
    killed process left there is removed first. Raises what the block raises, and OSError; then `path` is as it was, and
    nothing else is left.
    """
    beside = Path(f"{path}.new") if unfinished is None else unfinished
    beside.unlink(missing_ok=True)
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def write_whole(
    path: Path, content: str | bytes, *, sync: bool, mode: int | None = None, unfinished: Path | None = None
) -> None:
    """Write `content` (a text as UTF-8, its line ends as they are) in place of `path`, see `replacing`.

    `sync`: on the disk before it takes its place, so that a power cut leaves the old file or the new one. `mode`: its
    permission bits, whatever the umask; None: as the umask says. Raises OSError.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path, unfinished) as beside:
        write_new(beside, data, sync=sync, mode=mode)


def write_new(path: Path, data: bytes, *, sync: bool, mode: int | None = None) -> None:
    """Write a file where none is yet; `sync` and `mode` as in `write_whole`. Raises OSError, and may leave a part of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    with open(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        if sync:
            file.flush()
            os.fsync(descriptor)
