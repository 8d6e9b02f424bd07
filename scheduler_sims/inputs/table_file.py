"""Tables in files, CSV or Parquet: a path that ends with .parquet is Parquet, any other is CSV.

Tables are read as texts, so that one reader of workloads serves both: a cell of a Parquet file is the text that CSV would have.
pyarrow is imported here only, and only for a Parquet file.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import quoted
from emulator_runtime.files import replacing

PARQUET = ".parquet"
_PIECE = 65_536
"""Rows that are in memory at once."""
_EXACT = 2**53
"""Below it a float is the whole number that it shows."""
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Table:
    """A table as texts. `rows`: where each is, see place_of, and its cells; they are read on the way and raise InputError.

    `header_place`: where the names of the columns are. `comments`: the lines of a CSV file before them.
    """

    place: str
    header_place: str
    header: Sequence[str]
    rows: Iterator[tuple[int, list[str]]]
    comments: str = ""


def is_parquet(path: Path | str) -> bool:
    """Whether a file of this name is Parquet."""
    return str(path).lower().endswith(PARQUET)


def place_of(place: str, number: int) -> str:
    """Line `number` of a CSV file, or row `number` of a Parquet file, in an error. Both count from 1."""
    return f"{place}, row {number}" if is_parquet(place) else f"{place}:{number}"


def read_table(path: Path, what: str) -> Table:
    """The table in `path`. `what` it is, such as "the workload". Raises InputError."""
    if is_parquet(path):
        return _parquet_table(path, what)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(str(path), f"can't read {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), "is not UTF-8 text") from error
    return csv_table(text, str(path))


def csv_table(text: str, place: str) -> Table:
    """The table of a CSV file's text. The header is empty if the file has no lines. Raises InputError."""
    lines = text.split("\n")
    # Comment lines keep their place in the count, so that errors name the line an editor shows.
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    if not numbered:
        return Table(place, place, [], iter(()))
    first, names = numbered[0]
    header = [name.strip() for name in csv_cells(f"{place}:{first}", names)]
    rows = (
        (n, csv_cells(f"{place}:{n}", line) if '"' in line else line.split(","))
        for n, line in islice(numbered, 1, None)
    )
    return Table(place, f"{place}:{first}", header, rows, "".join(f"{line}\n" for line in lines[: first - 1]))


def csv_cells(place: str, line: str) -> list[str]:
    """The cells of one line, which is one row: read alone, so that an open quote is blamed on its own line."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise InputError(place, f"not CSV: {error}; close quotes on the line on which they open") from error


def write_csv(file: IO[str], header: Sequence[str], rows: Iterable[Sequence[object]], comments: str = "") -> None:
    """Writes a CSV file that csv_table reads. `comments`: lines that begin with #."""
    file.write(comments)
    plain, quoting = (
        csv.writer(file, lineterminator="\n", quoting=kind) for kind in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    plain.writerow(header)
    for cells in rows:
        (quoting if str(cells[0]).startswith("#") else plain).writerow(cells)  # else that line would be a comment


def write_table(path: Path, types: Mapping[str, type], rows: Iterable[Sequence[object]], comments: str = "") -> None:
    """Writes a table with columns of these types (str, float or int), which a CSV file doesn't state. It is replaced as a whole.

    Cells are texts, or what `str` makes them. Empty ones are null in a Parquet file, which has no comments. Raises InputError if
    a cell isn't of its column's type, and if the file can't be written.
    """
    try:
        with replacing(path, path.with_name(f".{path.name}.{os.getpid()}.tmp")) as unfinished:
            if is_parquet(path):
                _write_parquet(unfinished, str(path), types, iter(rows))
            else:
                with unfinished.open("w", encoding="utf-8", newline="") as file:
                    write_csv(file, list(types), rows, comments)
            with unfinished.open("rb") as written:
                os.fsync(written.fileno())
    except OSError as error:
        raise InputError(str(path), f"can't be written: {error.strerror}; choose another output folder") from error


def write_parquet_beside(path: Path, type_of: Callable[[str], type]) -> None:
    """Writes the CSV file `path` as Parquet, too, beside it. `type_of`: of a column. Raises InputError, see write_table."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        write_table(path.with_suffix(PARQUET), {name: type_of(name) for name in next(rows)}, rows)


def pyarrow_for(place: str) -> Any:
    """pyarrow, which `place` (a file or an option) needs. Raises InputError if it isn't installed."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise InputError(place, "needs the package pyarrow: pip install 'emugpu[parquet]'") from error
    return pyarrow


def _parquet_table(path: Path, what: str) -> Table:
    arrow = pyarrow_for(str(path))
    with _opened(arrow, path, what) as file:
        header = file.schema_arrow.names
    return Table(str(path), str(path), header, _parquet_rows(arrow, path, what))


def _parquet_rows(arrow: Any, path: Path, what: str) -> Iterator[tuple[int, list[str]]]:
    place, first = str(path), 1
    with _opened(arrow, path, what) as file:
        # Without threads: who reads may fork afterwards.
        for piece in file.iter_batches(_PIECE, use_threads=False):
            columns = [
                _texts(arrow, column, place, field.name, first)
                for field, column in zip(piece.schema, piece.columns, strict=True)
            ]
            yield from enumerate(map(list, zip(*columns, strict=True)), first)
            first += piece.num_rows


@contextmanager
def _opened(arrow: Any, path: Path, what: str) -> Iterator[Any]:
    """The file, with what pyarrow raises translated."""
    try:
        with path.open("rb") as file:
            yield arrow.parquet.ParquetFile(file, pre_buffer=False)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(str(path), f"can't read {what}: {error.strerror}") from error
        said = str(error).partition("\n")[0]
        raise InputError(str(path), f"is not a Parquet file, or it is damaged: {said}") from error


def _texts(arrow: Any, column: Any, place: str, name: str, first: int) -> list[str]:
    """The column's cells as texts; `first` is the number of the first one."""
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_boolean(kind):
        return ["" if value is None else "yes" if value else "no" for value in column.to_pylist()]
    if types.is_decimal(kind):
        column = column.cast(arrow.float64())
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not (is_text or types.is_integer(kind) or types.is_null(kind) or types.is_floating(column.type)):
        raise InputError(f"{place}: {name}", f"has cells of type {kind}; they must be texts, numbers or booleans")
    texts: list[str] = column.cast(arrow.string()).fill_null("").to_pylist()
    if types.is_floating(column.type):
        return [_number(text) for text in texts]
    for number, text in enumerate(texts, first) if is_text else ():
        if "\n" in text or "\r" in text:
            raise InputError(f"{place_of(place, number)}: {name}", f"has a line break: {quoted(text)}")
    return texts


def _number(text: str) -> str:
    """A float's text, without an exponent if it is whole: 1e+10 is 10000000000."""
    value = float(text or "nan")
    return str(int(value)) if abs(value) < _EXACT and value.is_integer() else text


def _write_parquet(path: Path, place: str, types: Mapping[str, type], rows: Iterator[Sequence[object]]) -> None:
    arrow, first = pyarrow_for(place), 1
    kinds = {str: arrow.string(), float: arrow.float64(), int: arrow.int64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in types.items()])
    with path.open("wb") as file, arrow.parquet.ParquetWriter(file, schema) as writer:
        while piece := list(islice(rows, _PIECE)):
            cells = zip(*piece, strict=True)
            columns = [
                _values(column, kind, place, name, first)
                for column, (name, kind) in zip(cells, types.items(), strict=True)
            ]
            writer.write_table(arrow.table(columns, schema=schema))
            first += len(piece)


def _values(column: Iterable[object], kind: type, place: str, name: str, first: int) -> list[object]:
    values: list[object] = []
    for number, cell in enumerate(column, first):
        text = str(cell)
        try:
            value = kind(text) if text.strip() else None
            if isinstance(value, int) and not _LEAST_INT <= value <= _MOST_INT:
                raise ValueError
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            problem = f"must be {wanted} in a Parquet file, not {quoted(text)}"
            raise InputError(f"{place}, row {number}: {name}", problem) from None
        values.append(value)
    return values
