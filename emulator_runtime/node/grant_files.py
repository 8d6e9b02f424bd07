"""Grants on disk. The device plugin mints one per Allocate; the sharing manager reads it when a container presents its token.

Each grant is a directory whose name is the first 32 hexadecimal digits of the token's SHA-256, so listing the directories
reveals no token. A grant is complete or absent: its directory is written under another name and renamed before `mint`
returns. Nothing is synced to the disk, because a power cut ends all containers, and the kubelet then fails all pods that
hold devices.

The file `.last-minted` has the time of the newest grant. The manager remembers the removed grants and treats a token that is
older than they are as void. Without the file, this would hit the first grant after the wall clock was set back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.json_document import parse
from emulator_runtime.files import write_new, write_whole
from emulator_runtime.node.layout import CUDA_SETTINGS

VERSION = 1
TOKEN_BYTES = 32
GRANT_FILE = "grant.json"
EDEV_DIR = "edev"
CUDA_DIR = "cuda"
LAST_FILE = ".last-minted"

_GRANT_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NANOSECONDS = re.compile(r"[0-9]{1,19}")
_UNFINISHED = ".new-"
_LEAVING = ".old-"


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """What one Allocate granted. `device_ids` are ordered by device index and replica; `minted_ns` is wall-clock time."""

    grant_id: str
    token_digest: str
    resource: str
    device_ids: tuple[str, ...]
    minted_ns: int


def _ignore(_problem: str) -> None:
    """The default report: broken grant directories aren't reported."""


class GrantFiles:
    """The grants in one directory. Only one process may mint; any number of processes may read and remove.

    `now`: wall clock in nanoseconds. `report`: called with one line for each directory that can't be read.
    """

    def __init__(self, grants_dir: Path, now: Callable[[], int], report: Callable[[str], None] = _ignore) -> None:
        self._dir = grants_dir
        self._now = now
        self._report = report
        self._lock = threading.Lock()
        self._last_ns: int | None = None

    def mint(
        self,
        resource: str,
        device_ids: tuple[str, ...],
        device_files: Mapping[int, Mapping[str, object]],
        cuda_settings: str = "",
    ) -> tuple[str, GrantRecord]:
        """Create a token for these devices; the grant is on disk before this returns. `device_files`: content of edev/<index>.
        `cuda_settings`: content of cuda/settings; empty: there is no such directory.

        Raises OSError (for example for a full disk); the unfinished grant is removed then.
        """
        token = secrets.token_hex(TOKEN_BYTES)
        digest = token_digest(token)
        with self._lock:
            record = GrantRecord(grant_id_of(token), digest, resource, device_ids, self._next_ns())
            unfinished = self._dir / f"{_UNFINISHED}{record.grant_id}"
            try:
                _write_grant(unfinished, record, device_files, cuda_settings)
                write_whole(self._dir / LAST_FILE, f"{record.minted_ns}\n", sync=False, mode=0o600)
                unfinished.rename(self.path(record.grant_id))
            except OSError:
                shutil.rmtree(unfinished, ignore_errors=True)
                self.remove(record.grant_id)
                raise
        return token, record

    def read(self, token: str) -> GrantRecord | None:
        """The grant of this token, or None if there is none. A broken directory is reported and returns None."""
        record = self._read(self.path(grant_id_of(token)))
        if record is None or not hmac.compare_digest(record.token_digest, token_digest(token)):
            return None
        return record

    def all(self) -> list[GrantRecord]:
        """Every grant, oldest first. Broken directories are reported and skipped."""
        try:
            names = [entry.name for entry in os.scandir(self._dir) if _GRANT_ID.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        records = (self._read(self._dir / name) for name in names)
        return sorted((record for record in records if record is not None), key=lambda record: record.minted_ns)

    def replace_device_files(self, grant_id: str, device_files: Mapping[int, Mapping[str, object]]) -> None:
        """Let the container see these devices from now on. Raises OSError."""
        edev = self.edev_dir(grant_id)
        before = {path.name: path.read_bytes() for path in edev.iterdir()}
        wanted = {str(index): _device_file(content) for index, content in device_files.items()}
        for name in wanted.keys() - {name for name, data in before.items() if wanted.get(name) == data}:
            write_whole(edev / name, wanted[name], sync=False, mode=0o644)
        for name in before.keys() - wanted.keys():
            (edev / name).unlink(missing_ok=True)

    def replace_cuda_settings(self, grant_id: str, text: str) -> None:
        """CUDA programs that start from now on see the devices in `text`. Without effect if the container has no CUDA settings.
        Raises OSError."""
        file = self.cuda_dir(grant_id) / CUDA_SETTINGS
        if file.exists() and file.read_text(encoding="utf-8") != text:
            write_whole(file, text, sync=False, mode=0o644)

    def remove(self, grant_id: str) -> None:
        """Delete the directory of a grant, if it exists. Raises InputError for an invalid grant id."""
        if not _GRANT_ID.fullmatch(grant_id):
            raise InputError("grant id", f"must be 32 hexadecimal digits, got {grant_id!r}")
        leaving = self._dir / f"{_LEAVING}{grant_id}"
        try:
            self.path(grant_id).rename(leaving)  # rename first, so that no process reads a half-deleted grant
        except FileNotFoundError:
            return
        shutil.rmtree(leaving, ignore_errors=True)

    def sweep(self) -> None:
        """Delete directories that a killed process or a power cut left incomplete. The minting process calls it at its start."""
        for prefix in (_UNFINISHED, _LEAVING):
            for path in self._dir.glob(f"{prefix}*"):
                shutil.rmtree(path, ignore_errors=True)
        for path in self._dir.iterdir() if self._dir.is_dir() else ():
            if _GRANT_ID.fullmatch(path.name) and _is_empty(path / GRANT_FILE):
                shutil.rmtree(path, ignore_errors=True)

    def path(self, grant_id: str) -> Path:
        """The directory of the grant."""
        return self._dir / grant_id

    def edev_dir(self, grant_id: str) -> Path:
        """The directory that the grant's container sees as /edev."""
        return self._dir / grant_id / EDEV_DIR

    def cuda_dir(self, grant_id: str) -> Path:
        """The directory that the grant's container sees as CONTAINER_CUDA_DIR."""
        return self._dir / grant_id / CUDA_DIR

    def _next_ns(self) -> int:
        """A time later than that of every grant so far, even if the wall clock was set back."""
        if self._last_ns is None:
            self._last_ns = max([self._noted_ns(), *(record.minted_ns for record in self.all())])
        self._last_ns = max(self._now(), self._last_ns + 1)
        return self._last_ns

    def _noted_ns(self) -> int:
        """The time of the newest grant from its file; 0 if the file can't be read, which is reported."""
        path = self._dir / LAST_FILE
        try:
            text = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return 0
        except (OSError, UnicodeDecodeError) as error:
            self._report(f"{path}: can't be read: {error}; it is made anew")
            return 0
        if not _NANOSECONDS.fullmatch(text):
            self._report(f"{path}: must hold nanoseconds in digits; it is made anew")
            return 0
        return int(text)

    def _read(self, directory: Path) -> GrantRecord | None:
        file = directory / GRANT_FILE
        try:
            return _parse_record(file.read_text(encoding="utf-8"), str(file), directory.name)
        except FileNotFoundError:
            if directory.exists():
                self._report(f"{directory}: has no {GRANT_FILE}; delete it")
        except OSError as error:
            self._report(f"{file}: can't be read: {error.strerror}")
        except (InputError, UnicodeDecodeError) as error:
            self._report(f"{error}; delete {directory}" if isinstance(error, InputError) else f"{file}: is not UTF-8")
        return None


def token_digest(token: str) -> str:
    """SHA-256 of the token as 64 hexadecimal digits. It is stored instead of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def grant_id_of(token: str) -> str:
    """The name of the grant directory of this token."""
    return token_digest(token)[:32]


def _write_grant(
    directory: Path, record: GrantRecord, device_files: Mapping[int, Mapping[str, object]], cuda_settings: str
) -> None:
    edev, cuda = directory / EDEV_DIR, directory / CUDA_DIR
    for made in (directory, edev, *([cuda] if cuda_settings else [])):
        made.mkdir(parents=True)
        made.chmod(0o755)
    if cuda_settings:
        write_new(cuda / CUDA_SETTINGS, cuda_settings.encode(), sync=False, mode=0o644)
    for index, content in device_files.items():
        write_new(edev / str(index), _device_file(content), sync=False, mode=0o644)
    document = {
        "version": VERSION,
        "token_digest": record.token_digest,
        "resource": record.resource,
        "device_ids": list(record.device_ids),
        "minted_ns": str(record.minted_ns),  # as text: nanoseconds since 1970 exceed 2**53
    }
    write_new(directory / GRANT_FILE, f"{json.dumps(document)}\n".encode(), sync=False, mode=0o600)


def _device_file(content: Mapping[str, object]) -> bytes:
    return f"{json.dumps(content)}\n".encode()


def _is_empty(file: Path) -> bool:
    """Whether the file is empty: after a power cut, a file system may keep the name and lose the content."""
    try:
        return file.stat().st_size == 0
    except OSError:
        return False


def _parse_record(text: str, place: str, grant_id: str) -> GrantRecord:
    members = parse(text, place).members(("version", "token_digest", "resource", "device_ids", "minted_ns"))
    members["version"].whole(least=VERSION, most=VERSION)
    digest = members["token_digest"]
    if not _DIGEST.fullmatch(digest.text()) or digest.text()[:32] != grant_id:
        raise digest.error("must be the SHA-256 that its directory is named by")
    minted = members["minted_ns"]
    if not _NANOSECONDS.fullmatch(minted.text()):
        raise minted.error("must be nanoseconds as a text of digits")
    ids = tuple(f.text(least=1) for f in members["device_ids"].elements())
    resource = members["resource"].text(least=1)
    return GrantRecord(grant_id, digest.text(), resource, ids, int(minted.text()))
