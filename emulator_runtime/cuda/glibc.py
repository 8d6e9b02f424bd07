"""Makes what is compiled on a newer glibc run with an older one: a header that binds functions to their older versions.

A program that is linked on a machine asks for the newest version of each function there. Most of glibc's new versions are the old
function in another place: pthread_create@GLIBC_2.34 is pthread_create@GLIBC_2.2.5, which moved from libpthread to libc. Where a
function has a version that is old enough, the header chooses the newest of these (`.symver`, see the GNU assembler's manual);
there is nothing to do for the others, and a library that uses one can't be loaded by the older glibc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from emulator_runtime.cuda.elf import Export, NotElfError, read_exports

OLDEST = (2, 31)
"""The oldest glibc with which the emulated libraries work: Debian 11, Ubuntu 20.04."""
LIBRARIES = ("libc.so.6", "libm.so.6")
OLD_PLACES = ("libpthread.so.0", "libdl.so.2", "librt.so.1")
"""Where functions are that moved to libc with glibc 2.34; newer releases keep these libraries for old programs."""

_VERSION = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.(\d+))?")
_ISO = "__isoc23_"
"""How <stdlib.h> and <stdio.h> call strtol and its like from glibc 2.38 on."""


def release(version: str) -> tuple[int, ...] | None:
    """GLIBC_2.3.4 is (2, 3, 4); None for other versions, such as GLIBC_PRIVATE."""
    match = _VERSION.fullmatch(version)
    return tuple(int(number) for number in match.groups() if number is not None) if match else None


def too_new(versions: Iterable[str], oldest: tuple[int, ...] = OLDEST) -> list[str]:
    """The versions that a glibc of the release `oldest` doesn't have."""
    known = ((release(version), version) for version in versions if version.startswith("GLIBC_"))
    return sorted(version for number, version in known if number is None or number > oldest)


def old_versions(exports: Iterable[Export], oldest: tuple[int, ...] = OLDEST) -> dict[str, str]:
    """The function and version, such as `dlopen@GLIBC_2.2.5`, for each function whose default version is newer than `oldest`."""
    fitting: dict[str, list[tuple[int, ...]]] = {}
    newer = set()
    for export in exports:
        number = release(export.version)
        if number is None:
            continue
        if number <= oldest:
            fitting.setdefault(export.name, []).append(number)
        elif export.default:
            newer.add(export.name)
    chosen = {}
    for name in sorted(newer):
        old_name = name.removeprefix(_ISO)
        if old_name in fitting:
            chosen[name] = f"{old_name}@GLIBC_{'.'.join(map(str, max(fitting[old_name])))}"
    return chosen


def header(libraries: Iterable[Path]) -> str:
    """The header for these libraries of the machine's glibc; only a comment where there is no glibc. Raises OSError."""
    chosen: dict[str, str] = {}
    for library in libraries:
        try:
            chosen |= old_versions(read_exports(library))
        except NotElfError:
            continue
    lines = [f'__asm__(".symver {name},{old}");' for name, old in chosen.items()]
    return "\n".join(["/* Older versions of glibc's functions. Written by glibc.py. */", *lines]) + "\n"
