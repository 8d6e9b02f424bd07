"""Rows of tables and JSON lists, read one by one, gzip or not; cells become numbers and times here; errors name them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_SECONDS
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY, quoted

_EMPTY = frozenset({"", "nan", "none", "null", "na", "\\n"})
"""How traces spell that there is no value, in lower case."""
_CHUNK = 1 << 16
_CONTENT = re.compile(r"[^\s,]")
_LONGEST_ITEM = 1 << 26
"""An item of so many characters is a mistake in the one before."""
_LATEST_S = 100 * MAX_SECONDS
"""Times on the clock of a trace, such as seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells by column. `number`: its line, or its place in a list, counted from 1. `surplus`: cells beyond its
    columns, negative if some are missing."""

    path: Path
    number: int
    cells: Mapping[str, str]
    surplus: int = 0

    @property
    def place(self) -> str:
        """For errors."""
        return f"{self.path}:{self.number}"

    def check(self) -> None:
        """Raises InputError for a row with too many or too few cells."""
        if self.surplus:
            raise InputError(self.place, f"has {abs(self.surplus)} cells too {'many' if self.surplus > 0 else 'few'}")

    def text(self, column: str) -> str:
        """The cell without spaces around it; empty if the trace has no value or no such column."""
        value = self.cells.get(column, "").strip()
        return "" if value.lower() in _EMPTY else value

    def named(self, column: str) -> str:
        """A cell that must not be empty. Raises InputError."""
        if not (value := self.text(column)):
            raise self.error(column, "is empty")
        return value

    def amount(self, column: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A number from `least` on; `default` if the cell is empty. Raises InputError."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= _LATEST_S:
            raise self.error(column, f"must be a number of at least {least:g}, not {quoted(text)}")
        return value

    def whole(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number, which may be written as 8.0. Raises InputError."""
        value = self.amount(column, default, least=least)
        if value != int(value):
            raise self.error(column, f"must be a whole number, not {quoted(self.text(column))}")
        return int(value)

    def moment(self, column: str) -> float | None:
        """Seconds since 1970 of a date and time; UTC if it has no zone. None if the cell is empty. Raises InputError."""
        if not (text := self.text(column)):
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise self.error(column, f"must be a time such as 2020-06-09 18:41:01, not {quoted(text)}") from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def error(self, column: str, problem: str) -> InputError:
        """An error that names the row and the column."""
        return InputError(f"{self.place}: {column}", problem)


Rows = Iterable[Row]


def span_s(row: Row, start_s: float, end_s: float, column: str) -> float:
    """Seconds from start to end. Raises InputError if it ends before it starts, or took longer than a workload can have."""
    if not 0 <= end_s - start_s <= MAX_SECONDS:
        raise row.error(
            column, f"is {end_s - start_s:g} s after the start; at least 0 and at most {MAX_SECONDS:g} s are possible"
        )
    return end_s - start_s


def table_rows(
    path: Path,
    needed: Sequence[str],
    *,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
    aliases: Mapping[str, str] | None = None,
) -> Iterator[Row]:
    """The rows of a table. `header`: its columns, for a file whose first line is a row already. `aliases`: other names.

    Raises InputError for a file that can't be read and for a missing column of `needed`.
    """
    with opened(path) as file:
        reader = csv.reader(
            file, delimiter=delimiter, quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        )
        lines = _lines(path, reader)
        columns = list(header or ())
        if header is None:
            first = next(lines, None)
            if first is None:
                raise InputError(str(path), f"is empty; its first line names the columns {', '.join(needed)}")
            columns = [(aliases or {}).get(name.strip(), name.strip()) for name in first[1]]
        if missing := [name for name in needed if name not in columns]:
            raise InputError(f"{path}:1", f"has no column {missing[0]}; this format has {', '.join(needed)}")
        for number, cells in lines:
            yield Row(path, number, dict(zip(columns, cells, strict=False)), len(cells) - len(columns))


def _lines(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The non-empty lines with their numbers."""
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}", f"is not a table: {error}") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def json_items(path: Path) -> Iterator[tuple[int, Any]]:
    """The items of a file with one JSON list, each with its number, counted from 1.

    Only one item is in memory at a time. Raises InputError for a file that isn't that.
    """
    decoder, buffer, position, number = json.JSONDecoder(), "", 0, 0
    with opened(path) as file:
        begun = ended = False
        for text in _chunks(path, file):
            buffer, position = buffer[position:] + text, 0
            if len(buffer) > _LONGEST_ITEM:
                break
            while not ended and (position := _next(buffer, position)) < len(buffer):
                if not begun:
                    if buffer[position] != "[":
                        raise InputError(f"{path}:1", "is not a JSON list: it must begin with [")
                    begun, position = True, position + 1
                elif buffer[position] == "]":
                    ended = True
                else:
                    try:
                        item, end = decoder.raw_decode(buffer, position)
                    except ValueError:
                        break  # the rest of the item is in the next chunk
                    except RecursionError as error:
                        raise InputError(f"{path}:{number + 1}", NESTED_TOO_DEEPLY) from error
                    if end == len(buffer) and not isinstance(item, dict | list):
                        break  # a number may go on
                    number, position = number + 1, end
                    yield number, item
        if not ended:
            raise InputError(
                f"{path}:{number + 1}", "is not JSON, or the file ends before its list does; download it again"
            )


def _next(buffer: str, position: int) -> int:
    """Where something else than spaces and commas stands, from `position` on."""
    found = _CONTENT.search(buffer, position)
    return len(buffer) if found is None else found.start()


def _chunks(path: Path, file: TextIO) -> Iterator[str]:
    try:
        while text := file.read(_CHUNK):
            yield text
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def opened(path: Path) -> TextIO:
    """The file as text, decompressed if its name ends in .gz. Raises InputError if there is none."""
    try:
        path.open("rb").close()
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(str(path), f"can't be read: {error}")
