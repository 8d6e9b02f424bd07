from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulator_runtime.cuda import build as building
from emulator_runtime.cuda.build import build, built, emulated_functions, stubs
from emulator_runtime.cuda.elf import read_elf
from emulator_runtime.cuda.families import FAMILIES, Family, family_of_function, family_of_library, soname_of
from emulator_runtime.domain.errors import BuildError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} isn't installed"))
    for name in ("gcc", "clang")
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_everything_compiles_without_a_warning(tmp_path: Path, compiler: str) -> None:
    build(tmp_path, compiler, ["-Werror"])
    for family in FAMILIES:
        for soname in family.sonames:
            library = read_elf(tmp_path / soname)
            assert library.soname == soname
            assert set(family.symbols) <= library.defined, soname
        for alias in family.aliases:
            assert (tmp_path / alias).resolve().name in family.sonames


@needs_compiler
def test_symbols_carry_the_version_that_programs_ask_for() -> None:
    for soname, version in {"libcudart.so.12": "libcudart.so.12", "libnvshmem_host.so.3": "NVSHMEM"}.items():
        shown = subprocess.run(
            [sys.executable, "-c", f"print(open({str(built() / soname)!r}, 'rb').read().count({version.encode()!r}))"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(shown.stdout) >= 1


@needs_compiler
def test_what_is_not_emulated_answers_not_supported_and_is_named_once() -> None:
    code = "import ctypes, sys; call = ctypes.CDLL(sys.argv[1]).nvjpegCreateSimple; print(call(0), call(0))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(built() / "libnvjpeg.so.13")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "9 9\n"
    assert done.stderr.count("nvjpegCreateSimple") == 1


@needs_compiler
def test_a_function_that_returns_text_returns_text() -> None:
    library = ctypes.CDLL(str(built() / "libnvrtc.so.13"))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    assert library.nvrtcGetErrorString(11)


def test_stubs_leave_out_what_the_source_defines() -> None:
    family = next(family for family in FAMILIES if family.name == "nvrtc")
    text = stubs(family, ["nvrtcVersion"])
    assert "NOT_SUPPORTED(nvrtcVersion" not in text
    assert "NOT_SUPPORTED(nvrtcCompileProgram, 11)" in text


def test_lists_are_sorted_without_doubles_and_of_their_family() -> None:
    for family in FAMILIES:
        assert list(family.symbols) == sorted(set(family.symbols)), family.name
        found = (family_of_function(name) for name in family.symbols)
        assert {each.name for each in found if each} <= {family.name}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("libcudart.so.13", "runtime"),
        ("libcudart.3eda8113.so.13", "runtime"),
        ("libcudart-e8e8b82a.so.12", "runtime"),
        ("libcuda.so", "driver"),
        ("libcudart.so.14", None),
        ("libc.so.6", None),
    ],
)
def test_a_library_is_known_by_its_name_without_a_hash(name: str, family: str | None) -> None:
    found = family_of_library(name)
    assert (found.name if found else None) == family


def test_only_a_hash_is_taken_out_of_a_name() -> None:
    assert soname_of("libcudnn_ops.so.9") == "libcudnn_ops.so.9"
    assert soname_of("libfoo.deadbeef.so") == "libfoo.so"
    assert soname_of("libfoo.deadbee.so") == "libfoo.deadbee.so"


@pytest.mark.parametrize(
    ("function", "family"),
    [
        ("cublasLtMatmul", "cublaslt"),
        ("cublasCreate_v2", "cublas"),
        ("cuInit", "driver"),
        ("cudaMalloc", "runtime"),
        ("__cudaRegisterFunction", "runtime"),
        ("cudnnCreate", "cudnn"),
        ("cuFileRead", "cufile"),
        ("cusparseLtInit", "cusparselt"),
        ("cusparseCreate", "cusparse"),
        ("cunmqr_", None),
        ("printf", None),
    ],
)
def test_a_function_belongs_to_the_family_of_its_prefix(function: str, family: str | None) -> None:
    found: Family | None = family_of_function(function)
    assert (found.name if found else None) == family


def test_a_machine_without_compiler_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(building.LIBRARIES_VARIABLE, raising=False)
    with pytest.raises(BuildError, match=r"no C compiler .*apt-get install gcc .*EMUGPU_CUDA_LIBRARIES=DIR"):
        built()


@needs_compiler
def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="nosuchoption"):
        build(tmp_path, None, ["--nosuchoption"])


def test_a_prepared_directory_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(building.LIBRARIES_VARIABLE, str(tmp_path))
    with pytest.raises(BuildError, match=r"has no libemugpu_core\.so"):
        built()
    (tmp_path / building.CORE).touch()
    assert built() == tmp_path
    with pytest.raises(BuildError, match="emugpu cuda build"):
        emulated_functions(tmp_path)


@needs_compiler
def test_processes_that_build_at_once_end_with_one_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMUGPU_CACHE", str(tmp_path))
    monkeypatch.delenv(building.LIBRARIES_VARIABLE, raising=False)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: built(), range(2))
    assert first == second
    assert os.listdir(tmp_path / "cuda") == [first.name]
    assert emulated_functions(first).keys() >= {"libcuda.so.1", "libcudart.so.13"}


@needs_compiler
def test_a_build_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise BuildError("no")

    monkeypatch.setenv("EMUGPU_CACHE", str(tmp_path))
    monkeypatch.delenv(building.LIBRARIES_VARIABLE, raising=False)
    monkeypatch.setattr(building, "build", fail)
    with pytest.raises(BuildError):
        built()
    assert os.listdir(tmp_path / "cuda") == []
