"""Copies the files that are mounted into job containers (nvidia-smi, the runtime library) from this image to the node
directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import replacing

_SKIPPED = "__pycache__"


def copy_tools(source: Path, target: Path) -> None:
    """Make `target` hold the same files as `source`. Each file is replaced as a whole, because containers have it open.

    Raises InputError if that fails.
    """
    try:
        if not source.is_dir():
            raise NotADirectoryError(0, "there is no such directory")
        wanted = set(_files(source))
        for file in sorted(wanted):
            _copy(source / file, target / file)
        for file in set(_files(target)) - wanted:
            (target / file).unlink()
    except OSError as error:
        fix = "name a directory of this image, and give room and access in the node directory; empty: no tools"
        raise InputError("EMUGPU_MANAGER_TOOLS", f"can't copy {source} to {target}: {error.strerror}; {fix}") from error


def _files(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and _SKIPPED not in path.parts:
            yield path.relative_to(directory)


def _copy(source: Path, target: Path) -> None:
    wanted = source.stat()
    if target.is_file():
        there = target.stat()
        if (there.st_size, there.st_mtime_ns, there.st_mode) == (wanted.st_size, wanted.st_mtime_ns, wanted.st_mode):
            return
    _make(target.parent)
    with replacing(target, target.with_name(f".{target.name}.new")) as unfinished:
        shutil.copy2(source, unfinished)


def _make(directory: Path) -> None:
    """Make the directory readable by all, whatever the umask is, because containers of any user read it."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir()
        directory.chmod(0o755)


def empty(directory: Path) -> None:
    """Remove everything in a directory. Raises InputError if something can't be removed."""
    try:
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise InputError(str(directory), f"can't be emptied: {error.strerror}; remove it by hand") from error
