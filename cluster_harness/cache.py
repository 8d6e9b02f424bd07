"""A cache for what takes minutes to build: entries are named by a hash of their sources, built under a lock, renamed in place."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError

KEPT_PER_KIND = 3
"""Entries of one kind that are kept: the current one, and those of two other branches or checkouts."""

_KEY_DIGITS = 16


def default_root(environ: Mapping[str, str] = os.environ) -> Path:
    """EMUGPU_CACHE, or ~/.cache/emugpu (XDG_CACHE_HOME is respected)."""
    if given := environ.get("EMUGPU_CACHE"):
        return Path(given).absolute()
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "emugpu"


def content_key(*parts: str | Path) -> str:
    """A hash of texts and of the contents, names and execute bits of files or directories; times and locations don't count.

    Raises ClusterError for a path that doesn't exist.
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            _feed(digest, b"text", part.encode())
            continue
        if not part.exists():
            raise ClusterError(f"{part}: doesn't exist; is the checkout complete?")
        for path in _files(part):
            name = path.relative_to(part).as_posix() if path != part else path.name
            _feed(digest, name.encode(), path.read_bytes(), b"x" if os.access(path, os.X_OK) else b"")
    return digest.hexdigest()[:_KEY_DIGITS]


def _feed(digest: hashlib._Hash, *fields: bytes) -> None:
    for field in fields:
        digest.update(len(field).to_bytes(8, "big") + field)


def _files(root: Path) -> Iterable[Path]:
    if root.is_file():
        return [root]
    return sorted(p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


class Cache:
    """A directory of finished entries; an unfinished one never has its final name."""

    def __init__(self, root: Path, say: Callable[[str], None] = lambda _text: None) -> None:
        self.root = root
        self._say = say

    def path(self, kind: str, key: str) -> Path:
        return self.root / kind / key

    def has(self, kind: str, key: str) -> bool:
        return self.path(kind, key).exists()

    def ensure(self, kind: str, key: str, make: Callable[[Path], object]) -> Path:
        """The path of the entry; `make` is called with a path to fill (file or directory) if there is no entry yet.

        Of two runs at once the second waits and uses the first one's entry. Raises what `make` raises, and removes its files.
        """
        path = self.path(kind, key)
        if path.exists():
            os.utime(path)
            return path
        with self.lock(kind):
            if path.exists():
                return path
            unfinished = path.with_name(f".{key}.tmp")
            for leftover in path.parent.glob(".*.tmp*"):  # of killed runs: no other run works here, as we hold the lock
                _remove(leftover)
            try:
                make(unfinished)
                unfinished.rename(path)
            finally:
                _remove(unfinished)
            self._prune(path)
        return path

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """A lock that one run on this machine holds at a time; a message is shown before waiting for it."""
        directory = self.root / name
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say(f"waiting for another run that uses {directory}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _prune(self, keep: Path) -> None:
        entries = [p for p in keep.parent.iterdir() if not p.name.startswith(".") and p != keep]
        for old in sorted(entries, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_PER_KIND - 1 :]:
            _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
