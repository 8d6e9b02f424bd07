"""Watches the inventory file that the manager writes, by polling stat. After an error, the last valid inventory stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import Inventory


class InventoryFile:
    """`report` gets one line about an error in the file, again only if the error changes."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._version: tuple[int, ...] | None = None
        self._problem = ""

    def poll(self) -> Inventory | None:
        """The inventory if the file has changed since the last call and is valid, else None."""
        try:
            status = self._path.stat()
            version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if version == self._version:
                return None
            inventory = Inventory.from_json(self._path.read_text(encoding="utf-8"), str(self._path))
        except FileNotFoundError:
            self._bad(f"{self._path}: isn't there; waiting for the sharing manager to publish it")
        except OSError as error:
            self._bad(f"{self._path}: can't be read: {error.strerror}; what was offered before stays")
        except UnicodeDecodeError:
            self._bad(f"{self._path}: is not UTF-8 text; what was offered before stays")
        except InputError as error:
            self._bad(f"{error}; what was offered before stays")
        else:
            self._version, self._problem = version, ""
            return inventory
        return None

    def _bad(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._report(problem)
