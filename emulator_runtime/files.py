"""Atomic file writes: a file is written under another name and then renamed, so that readers never see an unfinished one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, unfinished: Path | None = None) -> Iterator[Path]:
    """A path in the same directory, to be written by the block. At the end of the block it is renamed to `path`.

    `unfinished`: that path; by default `path` with the suffix `.new`. Writers that may run at the same time need different
    ones. A file that a killed process left there is removed first. Raises what the block raises, and OSError; `path` is
    unchanged then and the unfinished file is deleted.
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
    """Write `content` atomically to `path`, see `replacing`. A str is encoded as UTF-8; its line ends aren't changed.

    `sync`: fsync before the rename, so that after a power cut `path` has the old or the new content. `mode`: permission
    bits, independent of the umask; None: default permissions with the umask. Raises OSError.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replacing(path, unfinished) as beside:
        write_new(beside, data, sync=sync, mode=mode)


def write_new(path: Path, data: bytes, *, sync: bool, mode: int | None = None) -> None:
    """Write a file that must not exist yet; `sync` and `mode` as in `write_whole`. Raises OSError; a part may remain then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    with open(descriptor, "wb") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(data)
        if sync:
            file.flush()
            os.fsync(descriptor)
