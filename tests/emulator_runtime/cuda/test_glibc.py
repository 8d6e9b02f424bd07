"""The emulated libraries, which may be compiled on any glibc, run with glibc 2.31."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import REDIRECTOR, build
from emulator_runtime.cuda.elf import Export, NotElfError, read_elf, read_exports
from emulator_runtime.cuda.glibc import header, old_versions, release, too_new
from emulator_runtime.domain.errors import BuildError


def test_no_library_wants_a_newer_glibc(libraries):
    """A function that has no older version (`fstat` is one: use statx) can't be used by the libraries' sources."""
    wanted = {path.name: too_new(read_elf(path).needed_versions) for path in libraries.glob("*.so*")}
    assert len(wanted) > 20
    assert {name: versions for name, versions in wanted.items() if versions} == {}


def test_what_moved_to_libc_is_looked_for_in_its_old_place(libraries):
    """glibc 2.31 has pthread_create in libpthread, which not every program loads."""
    needed = read_elf(libraries / "libemugpu_core.so").needed
    assert {"libpthread.so.0", "libdl.so.2", "librt.so.1"} <= set(needed)


def test_the_redirector_loads_nothing_but_libc(libraries):
    assert read_elf(libraries / REDIRECTOR).needed == ("libc.so.6",)


def test_the_newest_version_that_is_old_enough_is_chosen():
    exports = [
        Export("dlopen", "GLIBC_2.34", default=True),
        Export("dlopen", "GLIBC_2.2.5", default=False),
        Export("pow", "GLIBC_2.40", default=True),
        Export("pow", "GLIBC_2.29", default=False),
        Export("pow", "GLIBC_2.2.5", default=False),
        Export("strtol", "GLIBC_2.2.5", default=True),
        Export("__isoc23_strtol", "GLIBC_2.38", default=True),
        Export("fstat", "GLIBC_2.33", default=True),  # it has no older version
        Export("printf", "GLIBC_2.2.5", default=True),
        Export("__libc_early_init", "GLIBC_PRIVATE", default=True),
    ]
    assert old_versions(exports) == {
        "__isoc23_strtol": "strtol@GLIBC_2.2.5",
        "dlopen": "dlopen@GLIBC_2.2.5",
        "pow": "pow@GLIBC_2.29",
    }


@pytest.mark.parametrize(
    ("version", "number"), [("GLIBC_2.3.4", (2, 3, 4)), ("GLIBC_2.31", (2, 31)), ("GLIBC_PRIVATE", None)]
)
def test_releases(version, number):
    assert release(version) == number


def test_versions_that_are_too_new():
    assert too_new(["GLIBC_2.2.5", "GLIBC_2.31", "libcudart.so.13"]) == []
    assert too_new(["GLIBC_2.32", "GLIBC_ABI_DT_RELR"]) == ["GLIBC_2.32", "GLIBC_ABI_DT_RELR"]


def test_the_header_of_a_machine_without_glibc_binds_nothing(tmp_path):
    script = tmp_path / "libc.so.6"
    script.write_text("GROUP ( /lib/libc.so.6 )", encoding="ascii")
    assert ".symver" not in header([script])


def test_exports_of_this_machine():
    defaults = [export.name for export in read_exports(libc()) if export.default]
    assert "printf" in defaults
    assert len(defaults) == len(set(defaults))


def test_a_file_that_is_no_library(tmp_path):
    file = tmp_path / "text"
    file.write_text("hello", encoding="ascii")
    with pytest.raises(NotElfError):
        read_exports(file)


def test_a_compiler_that_knows_no_glibc_is_named(tmp_path):
    with pytest.raises(BuildError, match=r"can't be compiled: .*false"):
        build(tmp_path / "libraries", "false")


def libc() -> Path:
    """The C library that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return Path(next(line.split()[-1] for line in lines if line.endswith(("/libc.so.6", "libc-2.31.so"))))


def test_programs_that_use_no_cuda_dont_notice_the_redirector(libraries):
    """Neither output nor exit status differ, also where the directory is unknown."""
    command = ["/bin/sh", "-c", "echo out; echo error >&2; exit 3"]
    for audit in (f"{libraries}/{REDIRECTOR}", f"{libraries}/./{REDIRECTOR}"):
        done = subprocess.run(command, capture_output=True, text=True, env={"LD_AUDIT": audit}, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "error\n")
