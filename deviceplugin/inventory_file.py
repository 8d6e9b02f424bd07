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
            self._report_once(f"{self._path}: doesn't exist yet; waiting for the sharing manager to publish it")
        except OSError as error:
            self._report_once(f"{self._path}: can't be read: {error.strerror}; the resources on offer don't change")
        except UnicodeDecodeError:
            self._report_once(f"{self._path}: is not UTF-8 text; the resources on offer don't change")
        except InputError as error:
            self._report_once(f"{error}; the resources on offer don't change")
        else:
            self._version, self._problem = version, ""
            return inventory
        return None

    def _report_once(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._report(problem)
