"""Tests of this folder once more, with libraries that gcc compiled with AddressSanitizer and UndefinedBehaviorSanitizer.

By default those that call most of the C code, and random calls, in about a minute. EMUGPU_SANITIZED=all: all that can run so, a
million random calls of driver and runtime among them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import CORE, LIBRARIES_VARIABLE, build
from emulator_runtime.cuda.elf import read_elf

HERE = Path(__file__).parent
FLAGS = (
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-O1",
)
SOME = (
    "test_core_memory.py",
    "test_core_time.py",
    "test_core_values.py",
    "test_smaller_libraries.py",
    "test_math_fuzz.py",
    "test_nccl_random_calls.py",
    "driver_runtime",
)
WITHOUT = ("test_build.py", "test_glibc.py", "test_program_clock.py", "test_redirect.py", "test_sanitized.py")
"""They compile, or preload libraries of their own before the sanitizers'."""


def _sanitizers() -> bool:
    """Whether gcc is installed with the sanitizers' libraries."""
    if shutil.which("gcc") is None:
        return False
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return all(Path(each.stdout.strip()).is_absolute() for each in found)


@pytest.mark.processes
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not _sanitizers(), reason="gcc isn't installed with libasan and libubsan")
def test_no_sanitizer_finds_an_error(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    build(libraries, "gcc", FLAGS)
    preloaded = [name for name in read_elf(libraries / CORE).needed if name.startswith(("libasan", "libubsan"))]
    assert len(preloaded) == 2
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {
        LIBRARIES_VARIABLE: str(libraries),
        "LD_PRELOAD": " ".join(sorted(preloaded)),
        # CPython leaks at its end.
        "ASAN_OPTIONS": f"detect_leaks=0:detect_stack_use_after_return=1:log_path={tmp_path / 'report'}",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that the sanitizer knows where Python's buffers end
    }
    everything = os.environ.get("EMUGPU_SANITIZED") == "all"
    chosen = [HERE] if everything else [HERE / name for name in SOME]
    marked = "not frameworks" if everything else "not frameworks and not long"
    options = ["-m", marked, *(f"--ignore={HERE / name}" for name in WITHOUT)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *map(str, chosen)],
        env=environment, cwd=HERE.parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    reports = [path.read_text(errors="replace") for path in tmp_path.glob("report.*")]
    assert not reports, "\n".join(reports)
    assert done.returncode == 0, done.stdout
