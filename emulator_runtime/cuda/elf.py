"""Reads what an ELF file (library, program, object) defines and what it wants of which library, without binutils.

The format: "Tool Interface Standard, Executable and Linking Format, version 1.2" and, for symbol versions, "Linux Standard Base
Core Specification 5.0, 10.7 Symbol Versioning". Only what this project meets is read: 64 bits, little-endian, with section
headers.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<16xHH IQQQ IHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_VERSION_NEED = struct.Struct("<HHIII")
_VERSION_NAME = struct.Struct("<IHHII")
_VERSION_DEFINITION = struct.Struct("<HHHHIII")

_SYMTAB, _DYNAMIC_SECTION, _DYNSYM = 2, 6, 11
_VERSION_DEFINITIONS, _VERSION_NEEDS, _VERSIONS = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_NO_BITS = 8
_NEEDED, _SONAME = 1, 14
_LOCAL = 0
_FIRST_NAMED_VERSION = 2
_HIDDEN_VERSION = 0x8000


class NotElfError(Exception):
    """The file isn't an ELF file of 64 bits, or a damaged one. Callers catch it: a folder has all kinds of files."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An undefined symbol. `library`: the SONAME that its version requirement names; empty if it has none."""

    name: str
    library: str


@dataclass(frozen=True, slots=True)
class ElfFile:
    """What the dynamic linker would read of a file. `needed`: the SONAMEs of its DT_NEEDED entries. `needed_versions`: the
    versions that these libraries must have, such as GLIBC_2.31."""

    soname: str
    needed: tuple[str, ...]
    needed_versions: frozenset[str]
    wanted: frozenset[Wanted]
    defined: frozenset[str]
    texts: frozenset[str]
    """The constants of the program that were asked for."""


def read_elf(path: Path, texts: re.Pattern[bytes] | None = None) -> ElfFile:
    """The dynamic symbols of a library or program, or the symbols of an object file. Raises NotElfError and OSError.

    `texts`: what to look for in the program's constants; each match's first group becomes one of `ElfFile.texts`.
    """
    return _reading(path, lambda data: _read(data, texts))


def _reading(path: Path, read: Callable[[mmap.mmap], T]) -> T:
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise NotElfError(f"{path}: not an ELF file of 64 bits")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return read(data)
            except (struct.error, IndexError, OverflowError, ValueError) as error:
                raise NotElfError(f"{path}: a damaged ELF file ({error})") from error


@dataclass(frozen=True, slots=True)
class Export:
    """A symbol that a library defines, in one of its versions. `default`: the one to which programs are linked now."""

    name: str
    version: str
    default: bool


def read_exports(path: Path) -> list[Export]:
    """The symbols of a library that have versions. Raises NotElfError and OSError."""
    return _reading(path, lambda data: list(_exports(data)))


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    bytes: int
    link: int
    count: int
    """The section's sh_info: of version requirements, how many there are."""


def _read(data: mmap.mmap, texts: re.Pattern[bytes] | None) -> ElfFile:
    sections = _sections(data)
    by_kind = {section.kind: section for section in sections}
    symbols = by_kind.get(_DYNSYM) or by_kind.get(_SYMTAB)
    wanted, defined = _symbols(data, sections, symbols, by_kind) if symbols else (frozenset(), frozenset())
    entries = list(_dynamic_entries(data, sections, by_kind.get(_DYNAMIC_SECTION)))
    return ElfFile(
        soname=next((text for tag, text in entries if tag == _SONAME), ""),
        needed=tuple(text for tag, text in entries if tag == _NEEDED),
        needed_versions=frozenset(name for _, _, name in _version_needs(data, sections, by_kind.get(_VERSION_NEEDS))),
        wanted=wanted,
        defined=defined,
        texts=_matches(data, sections, texts) if texts else frozenset(),
    )


def _sections(data: mmap.mmap) -> list[_Section]:
    header = _HEADER.unpack_from(data)
    table, entry_bytes, entries, names_index = header[5], header[10], header[11], header[12]
    raw = [_SECTION.unpack_from(data, table + index * entry_bytes) for index in range(entries)]
    names = raw[names_index][4] if raw else 0
    return [
        _Section(_text(data, names + name), kind, offset, size, link, info)
        for name, kind, _, _, offset, size, link, info, _, _ in raw
    ]


def _symbols(
    data: mmap.mmap, sections: list[_Section], symbols: _Section, by_kind: Mapping[int, _Section]
) -> tuple[frozenset[Wanted], frozenset[str]]:
    libraries = _version_libraries(data, sections, by_kind.get(_VERSION_NEEDS))
    versions = by_kind.get(_VERSIONS)
    texts = sections[symbols.link].offset
    wanted, defined = set(), set()
    for index, (name, info, visibility, section, _, _) in enumerate(_SYMBOL.iter_unpack(_content(data, symbols))):
        if not name or info >> 4 == _LOCAL:
            continue
        if section:
            if visibility & 3 == 0:
                defined.add(_text(data, texts + name))
            continue
        version = struct.unpack_from("<H", data, versions.offset + 2 * index)[0] & ~_HIDDEN_VERSION if versions else 0
        wanted.add(Wanted(_text(data, texts + name), libraries.get(version, "")))
    return frozenset(wanted), frozenset(defined)


def _version_libraries(data: mmap.mmap, sections: list[_Section], needs: _Section | None) -> dict[int, str]:
    """The library of each version number that the file's symbols refer to."""
    return {
        number: library
        for number, library, _ in _version_needs(data, sections, needs)
        if number >= _FIRST_NAMED_VERSION
    }


def _version_needs(data: mmap.mmap, sections: list[_Section], needs: _Section | None) -> Iterator[tuple[int, str, str]]:
    """Number, library and name of each version that the file wants of others."""
    if needs is None:
        return
    texts, place = sections[needs.link].offset, needs.offset
    for _ in range(needs.count):
        _, names, library, first_name, next_need = _VERSION_NEED.unpack_from(data, place)
        name_place = place + first_name
        for _ in range(names):
            _, _, number, name, next_name = _VERSION_NAME.unpack_from(data, name_place)
            yield number, _text(data, texts + library), _text(data, texts + name)
            name_place += next_name
            if not next_name:
                break
        place += next_need
        if not next_need:
            break


def _exports(data: mmap.mmap) -> Iterator[Export]:
    sections = _sections(data)
    by_kind = {section.kind: section for section in sections}
    symbols, versions = by_kind.get(_DYNSYM), by_kind.get(_VERSIONS)
    if symbols is None or versions is None:
        return
    names = _version_names(data, sections, by_kind.get(_VERSION_DEFINITIONS))
    texts = sections[symbols.link].offset
    for index, (name, _, _, section, _, _) in enumerate(_SYMBOL.iter_unpack(_content(data, symbols))):
        number = struct.unpack_from("<H", data, versions.offset + 2 * index)[0]
        version = names.get(number & ~_HIDDEN_VERSION)
        if section and version is not None:
            yield Export(_text(data, texts + name), version, default=not number & _HIDDEN_VERSION)


def _version_names(data: mmap.mmap, sections: list[_Section], definitions: _Section | None) -> dict[int, str]:
    """The names of a library's own versions by their numbers."""
    names: dict[int, str] = {}
    if definitions is None:
        return names
    texts, place = sections[definitions.link].offset, definitions.offset
    for _ in range(definitions.count):
        _, _, number, _, _, first_name, next_definition = _VERSION_DEFINITION.unpack_from(data, place)
        names[number] = _text(data, texts + struct.unpack_from("<I", data, place + first_name)[0])
        place += next_definition
        if not next_definition:
            break
    return names


def _dynamic_entries(data: mmap.mmap, sections: list[_Section], dynamic: _Section | None) -> Iterator[tuple[int, str]]:
    """The entries of the dynamic section whose value is a text of interest."""
    if dynamic is None:
        return
    texts = sections[dynamic.link].offset
    for tag, value in _DYNAMIC.iter_unpack(_content(data, dynamic)):
        if tag in (_NEEDED, _SONAME):
            yield tag, _text(data, texts + value)


def _matches(data: mmap.mmap, sections: list[_Section], texts: re.Pattern[bytes]) -> frozenset[str]:
    """A library's constants may be hundreds of megabytes: they are searched where they are."""
    places = [s for s in sections if s.name.startswith(".rodata") and s.kind != _NO_BITS]
    return frozenset(
        match[1].decode("utf-8", "replace")
        for s in places
        for match in texts.finditer(data, s.offset, s.offset + s.bytes)
    )


def _content(data: mmap.mmap, section: _Section) -> bytes:
    return b"" if section.kind == _NO_BITS else data[section.offset : section.offset + section.bytes]


def _text(data: mmap.mmap, place: int) -> str:
    end = data.find(b"\0", place)
    if end < 0:
        raise ValueError("a text without an end")
    return data[place:end].decode("utf-8", "replace")
