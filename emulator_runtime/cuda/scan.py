"""What the libraries and programs of an installed framework want from NVIDIA's libraries, and which of it is emulated.

A name is wanted if it is an undefined symbol of a file, or if a file that looks names up while it runs (in libcuda, or through
`cudaGetDriverEntryPoint`) has it among its constants.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from emulator_runtime.cuda.elf import ElfFile, NotElfError, read_elf
from emulator_runtime.cuda.families import FAMILIES, Family, family_of_function, family_of_library, soname_of
from emulator_runtime.domain.errors import InputError

_STATIC_RUNTIME = "CUDA driver version is insufficient for CUDA runtime version"
"""A text of the CUDA runtime. A file that has it and is no libcudart contains the static one (nvcc's default)."""
_OPENS = ("libcuda.so", "libnvidia-ml.so", "libcupti.so")
_TEXTS = re.compile(
    rb"\0((?:cu[A-Z]|cupti[A-Z]|nvml[A-Z])[A-Za-z0-9_]{2,60}"
    rb"|lib(?:cuda|nvidia-ml|cupti)\.so[.0-9]*"
    rb"|" + _STATIC_RUNTIME.encode() + rb")(?=\0)"
)
_IN_SOURCE = {
    "pynvml.py": re.compile(r"_nvmlGetFunctionPointer\(\"(\w+)\""),
    "driver.c": re.compile(r"\b(cu[A-Z]\w*)(?=[(),]|\"\))"),  # of Triton, which compiles it while it runs
}
"""Source files that look names up, and the pattern of these names."""
_NVIDIA = re.compile(r"lib(cu|nv|nccl)[\w-]*\.so")
_NO_FUNCTION = re.compile(
    r"\w+_(t|st|params)|cu(Context|Mask\w*|FFT\w+)|cupti(LibPath|StallName|_version)|cuLaunchKernelExHandle"
)
"""Texts and identifiers in such files that aren't names of functions."""
_MAGIC = b"\x7fELF"


class Support(Enum):
    """What a program gets that calls a function. UNKNOWN: no list has the name, so the program doesn't even start or find it."""

    EMULATED = "emulated"
    NOT_SUPPORTED = "not supported"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Need:
    """A function that `files` want of a library.

    `library`: its SONAME, without a hash; of a function that is looked up while the program runs, the newest one.
    """

    library: str
    function: str
    support: Support
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """`static`: the files that contain the CUDA runtime themselves, so that nothing can be emulated for them."""

    root: Path
    files: int
    needs: tuple[Need, ...]
    static: tuple[str, ...]

    def of(self, support: Support) -> tuple[Need, ...]:
        return tuple(need for need in self.needs if need.support is support)


def scan(
    root: Path, emulated: Mapping[str, frozenset[str]], progress: Callable[[int, int], None] = lambda done, total: None
) -> Scan:
    """Read all libraries and programs below `root`: a virtual environment, a folder, or one file.

    `emulated`: see `build.emulated_functions`. `progress` is told how many of how many files have been read. Raises
    InputError if there is nothing to read.
    """
    paths = list(_candidates(_packages(root)))
    if not paths:
        raise InputError(str(root), "has no library, program or virtual environment to scan")
    wanted: dict[tuple[str, str], set[str]] = {}
    static = []
    for done, path in enumerate(paths):
        progress(done, len(paths))
        name = str(path.relative_to(root)) if path != root else path.name
        found = _read(path, nvidias=_is_nvidias(path.relative_to(root)))
        if found.static:
            static.append(name)
        for need in found.needs:
            wanted.setdefault(need, set()).add(name)
    progress(len(paths), len(paths))
    needs = (
        Need(library, function, _support(library, function, emulated), tuple(sorted(files)))
        for (library, function), files in sorted(wanted.items())
    )
    return Scan(root, len(paths), tuple(needs), tuple(static))


def _packages(root: Path) -> Path:
    """Where the packages of a virtual environment are."""
    return next(iter(sorted(root.glob("lib/python3*/site-packages"))), root)


def _candidates(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if (name in _IN_SOURCE or _is_elf(path)) and not path.is_symlink():
                yield path


def _is_elf(path: Path) -> bool:
    if ".so" not in path.name and "." in path.name:
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class _File:
    """(library, function) that a file wants, and whether it contains the CUDA runtime."""

    needs: frozenset[tuple[str, str]] = frozenset()
    static: bool = False


def _read(path: Path, *, nvidias: bool) -> _File:
    if nvidias:
        return _File()
    pattern = _IN_SOURCE.get(path.name)
    if pattern is not None:
        return _File(_looked_up(set(pattern.findall(path.read_text(encoding="utf-8", errors="replace")))))
    try:
        elf = read_elf(path, _TEXTS)
    except NotElfError:
        return _File()
    if _NVIDIA.match(soname_of(elf.soname or path.name)):
        return _File()  # it is replaced as a whole, or used by such libraries only
    names = _linked(elf)
    if _STATIC_RUNTIME in elf.texts:  # which knows the names of the whole driver
        return _File(names, static=True)
    if any(text.startswith(_OPENS) for text in elf.texts) or any(
        "cudaGetDriverEntryPoint" in name for _, name in names
    ):
        return _File(names | _looked_up(elf.texts))
    return _File(names)


def _is_nvidias(name: Path) -> bool:
    """Whether a file belongs to a package of NVIDIA's libraries, which use each other."""
    return "nvidia" in name.parts and name.name not in _IN_SOURCE


def _linked(elf: ElfFile) -> frozenset[tuple[str, str]]:
    """Undefined symbols by library. Those without a version may come from any library that the file needs."""
    near = {family.name: (soname, family) for soname in elf.needed if (family := family_of_library(soname))}
    names = set()
    for symbol in elf.wanted:
        if _NVIDIA.match(soname_of(symbol.library)):
            names.add((soname_of(symbol.library), symbol.name))
        elif not symbol.library:
            family = family_of_function(symbol.name, (family for _, family in near.values()))
            if family is not None:
                names.add((soname_of(near[family.name][0]), symbol.name))
    return frozenset(names)


def _looked_up(texts: Iterable[str]) -> frozenset[tuple[str, str]]:
    families = ((family_of_function(text), text) for text in texts if not _NO_FUNCTION.fullmatch(text))
    return frozenset(([*family.sonames][-1], text) for family, text in families if family is not None)


def _support(library: str, function: str, emulated: Mapping[str, frozenset[str]]) -> Support:
    family = family_of_library(library)
    if family is None:
        return Support.UNKNOWN
    if function in emulated.get(library, ()):
        return Support.EMULATED
    return Support.NOT_SUPPORTED if function in _listed(family) else Support.UNKNOWN


def _listed(family: Family) -> frozenset[str]:
    return _LISTS[family.name]


_LISTS = {family.name: frozenset(family.symbols) for family in FAMILIES}
