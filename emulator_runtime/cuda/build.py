"""Compiles the emulated CUDA libraries with the C compiler of the machine.

Nothing of NVIDIA's is needed. What is compiled: the core, a library for each SONAME of `families.FAMILIES`, and the redirector. A
function that programs want (`symbols/`) and that a library's source doesn't define gets a stub, which logs its name and returns
the library's status for "not supported".
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.cuda.elf import read_elf
from emulator_runtime.cuda.families import CUDA_STATE, FAMILIES, SOURCES, SYMBOLS, Family, cuda_state_sources
from emulator_runtime.cuda.glibc import LIBRARIES, OLD_PLACES, header
from emulator_runtime.domain.errors import BuildError
from emulator_runtime.files import write_whole

CORE = "libemugpu_core.so"
MANIFEST = "emulated.json"
"""Which functions are emulated, by SONAME; the other symbols of the library answer "not supported"."""
REDIRECTOR = "libemugpu_redirect.so"
PROGRAM_CLOCK = "libemugpu_clock.so"
"""Loaded before the C library, it shows a program the emulated time of the core."""
LIBRARIES_VARIABLE = "EMUGPU_CUDA_LIBRARIES"
"""A directory with compiled libraries, for machines and images without a compiler."""

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")
_LINK = (
    "-shared",
    "-pthread",
    "-Wl,-Bsymbolic",
    "-Wl,-z,now",
    "-Wl,--enable-new-dtags",
    "-Wl,-rpath,$ORIGIN",
    "-Wl,--build-id=none",
)
_SYSTEM_LIBRARIES = (*OLD_PLACES, "libm.so.6")


def build(directory: Path, compiler: str | None = None, flags: Sequence[str] = ()) -> None:
    """Compile everything into `directory`, which is created if it doesn't exist.

    `compiler`: a command, by default cc, gcc or clang, whichever is installed. `flags`: in addition to the usual ones, for
    compiling and linking (`-fsanitize=address`). Raises BuildError, with what the compiler printed, and OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="emugpu-cuda-") as scratch, ThreadPoolExecutor(_workers()) as pool:
        builder = _Builder(_compiler(compiler), tuple(flags), directory, Path(scratch), pool)
        builder.prepare()
        builder.core()
        builder.cuda_state()
        builder.redirector()
        builder.program_clock()
        emulated = dict(pool.map(lambda one: builder.library(*one), _libraries()))
    write_whole(directory / MANIFEST, json.dumps(emulated, indent=0, sort_keys=True), sync=False)


def built(compiler: str | None = None) -> Path:
    """The directory with the compiled libraries; compiles them if this hasn't been done yet with these sources and compiler.

    EMUGPU_CUDA_LIBRARIES names a directory that is used as it is; otherwise they are kept in the user's cache. Several processes
    may call this at once: each compiles for itself, and the first one that ends is used by all. Raises BuildError and OSError.
    """
    given = os.environ.get(LIBRARIES_VARIABLE)
    if given:
        return _prepared(Path(given).absolute())
    command = _compiler(compiler)
    cache = _cache()
    wanted = cache / _key(command)
    if wanted.is_dir():
        return wanted
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=cache))
    try:
        unfinished.chmod(0o755)
        build(unfinished, command)
        try:
            unfinished.rename(wanted)
        except OSError:
            if not wanted.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return wanted


def emulated_functions(directory: Path) -> Mapping[str, frozenset[str]]:
    """The functions that are emulated by the libraries in `directory`, by SONAME. Raises BuildError."""
    try:
        return {soname: frozenset(names) for soname, names in json.loads((directory / MANIFEST).read_bytes()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise BuildError(
            f"{directory / MANIFEST}: {error}; was the directory filled by `emugpu cuda build`?"
        ) from error


def stubs(family: Family, defined: Iterable[str]) -> str:
    """C source of the functions of `family` that programs want and that are not among the `defined` ones."""
    missing = sorted(set(family.symbols) - set(defined))
    lines = [
        f"/* Functions of {family.title} that aren't emulated. Written by build.py. */",
        '#include "core.h"',
        "",
        "#define NOT_SUPPORTED(function, answer) \\",
        "    EMU_EXPORT long function(void); \\",
        "    long function(void) \\",
        "    { \\",
        f'        emu_unsupported("{family.title}", #function); \\',
        "        return answer; \\",
        "    }",
        "",
        *(f"NOT_SUPPORTED({name}, {family.answer(name)})" for name in missing),
    ]
    return "\n".join(lines) + "\n"


def _libraries() -> list[tuple[Family, str, int]]:
    return [(family, soname, release) for family in FAMILIES for soname, release in family.sonames.items()]


@dataclass(frozen=True, slots=True)
class _Builder:
    """Compiles into `directory`; intermediate files are in `scratch`."""

    compiler: str
    flags: tuple[str, ...]
    directory: Path
    scratch: Path
    pool: ThreadPoolExecutor

    def prepare(self) -> None:
        """Write the header with which the result runs on glibc 2.31, however new this machine's is."""
        self._header.write_text(header(filter(None, map(self._system_library, LIBRARIES))), encoding="ascii")

    def core(self) -> None:
        """It stays when a program closes it, since its threads run on."""
        self._link(self._compile_all("core", sorted((SOURCES / "core").glob("*.c"))), CORE, ["-Wl,-z,nodelete"])

    def cuda_state(self) -> None:
        """Linked by the libraries that name it, to the core."""
        self._link(self._compile_all("cuda", cuda_state_sources()), CUDA_STATE, self._linked((CORE,)))

    def _compile_all(self, part: str, sources: Sequence[Path]) -> list[Path]:
        return list(self.pool.map(lambda path: self._compile(path, self.scratch / f"{part}-{path.stem}.o"), sources))

    def _linked(self, libraries: Iterable[str]) -> list[str]:
        return [f"-L{self.directory}", "-Wl,--no-as-needed", *(f"-l:{name}" for name in libraries)]

    def redirector(self) -> None:
        """It is linked to nothing of ours: the dynamic linker loads it into a namespace of its own."""
        source = SOURCES / "redirect.c"
        if source.exists():
            self._link([self._compile(source, self.scratch / "redirect.o")], REDIRECTOR, [], needs=())

    def program_clock(self) -> None:
        """It defines functions of the C library itself, so that older versions are chosen only of those by which it finds the
        C library's."""
        lines = self._header.read_text(encoding="ascii").splitlines(keepends=True)
        own = self.scratch / "program_clock.h"
        own.write_text("".join(line for line in lines if ".symver dl" in line), encoding="ascii")
        compiled = self._compile(SOURCES / "program_clock.c", self.scratch / "program_clock.o", header=own)
        self._link([compiled], PROGRAM_CLOCK, [])

    def library(self, family: Family, soname: str, release: int) -> tuple[str, list[str]]:
        """One library: its sources, stubs for what they don't define, and the symbols' version. Its SONAME, and what its
        sources define."""
        own = [self._compile(s, self.scratch / f"{soname}-{s.stem}.o", release) for s in family.sources]
        defined = {name for each in own for name in read_elf(each).defined}
        generated = self.scratch / f"{soname}-stubs.c"
        generated.write_text(stubs(family, defined), encoding="ascii")
        objects = [*own, self._compile(generated, generated.with_suffix(".o"), release)]
        options = self._linked((CORE, *family.links))
        if family.version:
            script = self.scratch / f"{soname}.version"
            script.write_text(f"{family.version.replace('SONAME', soname)} {{ global: *; }};\n", encoding="ascii")
            options.append(f"-Wl,--version-script={script}")
        self._link(objects, soname, options)
        for alias in family.aliases:
            (self.directory / alias).unlink(missing_ok=True)
            (self.directory / alias).symlink_to(soname)
        return soname, sorted(defined)

    def _compile(self, source: Path, into: Path, release: int | None = None, header: Path | None = None) -> Path:
        variant = [] if release is None else [f"-DCUDA_MAJOR={release}"]
        folders = [f"-I{SOURCES / 'core'}", f"-I{SOURCES / 'libraries'}"]
        include = ["-include", str(header or self._header)]
        self._run([*_FLAGS, *self.flags, *variant, *folders, *include, "-c", str(source), "-o", str(into)])
        return into

    def _link(
        self, objects: Sequence[Path], soname: str, options: Sequence[str], needs: Sequence[str] = _SYSTEM_LIBRARIES
    ) -> None:
        """A library appears under its name when it is complete. `needs`: libraries of an older glibc that are loaded with it."""
        unfinished = self.scratch / soname
        places = [f"-l:{name}" if self._system_library(name) else f"-l{name[3:-5]}" for name in needs]
        inputs = [*map(str, objects), *options, "-Wl,--no-as-needed", *places]
        self._run([*_LINK, *self.flags, f"-Wl,-soname,{soname}", "-o", str(unfinished), *inputs])
        shutil.copyfile(unfinished, self.directory / f".{soname}.new")
        (self.directory / f".{soname}.new").chmod(0o755)
        (self.directory / f".{soname}.new").replace(self.directory / soname)

    @property
    def _header(self) -> Path:
        return self.scratch / "older_glibc.h"

    def _system_library(self, name: str) -> Path | None:
        """A library of the machine that the compiler compiles for; None if there is none of that name."""
        path = Path(self._run([f"-print-file-name={name}"]).strip())
        return path if path.is_absolute() else None

    def _run(self, arguments: Sequence[str]) -> str:
        done = subprocess.run([self.compiler, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            command = " ".join([self.compiler, *arguments])
            raise BuildError(f"the emulated CUDA libraries can't be compiled: {command}\n{done.stderr.strip()}")
        return done.stdout


def _compiler(wanted: str | None) -> str:
    candidates = _COMPILERS if wanted is None else (wanted,)
    path = next((path for path in map(shutil.which, candidates) if path), None)
    if path is None:
        raise BuildError(
            "the emulated CUDA libraries are compiled on first use, and this machine has no C compiler "
            f"({', '.join(candidates)}): install one (Debian and Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install "
            "gcc), or name a directory that `emugpu cuda build --into DIR` has filled on another machine: "
            f"{LIBRARIES_VARIABLE}=DIR"
        )
    return path


def _prepared(directory: Path) -> Path:
    if not (directory / CORE).is_file():
        raise BuildError(
            f"{LIBRARIES_VARIABLE}: {directory} has no {CORE}; fill it by `emugpu cuda build --into {directory}`"
        )
    return directory


def _workers() -> int:
    return max(2, os.cpu_count() or 2)


def _cache() -> Path:
    """EMUGPU_CACHE, or ~/.cache/emugpu (XDG_CACHE_HOME is respected)."""
    chosen = os.environ.get("EMUGPU_CACHE")
    if chosen:
        return Path(chosen) / "cuda"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "emugpu" / "cuda"


def _key(compiler: str) -> str:
    """Differs as soon as a source, a list, the way of compiling or the compiler does."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(version + compiler.encode())
    here = Path(__file__).parent
    modules = [here / f"{name}.py" for name in ("build", "elf", "families", "glibc")]
    inputs = [*modules, *SOURCES.rglob("*.[ch]"), *SYMBOLS.glob("*.txt")]
    for path in sorted(inputs):
        digest.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
