from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built, emulated_functions
from emulator_runtime.cuda.scan import Support, scan
from emulator_runtime.domain.errors import InputError
from tests.support.torch_releases import RELEASES, installed

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

STATIC = "CUDA driver version is insufficient for CUDA runtime version"


def compiled(folder: Path, name: str, source: str, *libraries: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "source.c", *libraries, "-o", name], cwd=folder, check=True)
    return folder / name


def fake(folder: Path, soname: str, functions: str) -> str:
    """A library of NVIDIA's, as a linker sees it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fake.version").write_text(f"{soname} {{ global: *; }};\n")
    source = "".join(f"void {name}(void) {{}}\n" for name in functions.split())
    library = compiled(folder, soname, source, f"-Wl,-soname,{soname}", "-Wl,--version-script=fake.version")
    return str(library)


def test_each_function_is_said_to_be_emulated_not_supported_or_unknown(tmp_path: Path) -> None:
    runtime = fake(tmp_path / "nvidia", "libcudart.so.13", "cudaMalloc cudaFree cudaOfTomorrow")
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    compiled(site / "one", "one.so", "void cudaMalloc(), cudaFree(), cudaOfTomorrow();"
             "void f() { cudaMalloc(); cudaFree(); cudaOfTomorrow(); }", runtime)  # fmt: skip
    found = scan(tmp_path, {"libcudart.so.13": frozenset({"cudaFree"})})
    assert {(need.library, need.function, need.support) for need in found.needs} == {
        ("libcudart.so.13", "cudaMalloc", Support.NOT_SUPPORTED),
        ("libcudart.so.13", "cudaFree", Support.EMULATED),
        ("libcudart.so.13", "cudaOfTomorrow", Support.UNKNOWN),
    }
    assert found.needs[0].files == ("lib/python3.11/site-packages/one/one.so",)


def test_a_renamed_library_is_the_same_library(tmp_path: Path) -> None:
    runtime = Path(fake(tmp_path / "packages.libs", "libcudart.0123abcd.so.13", "cudaMalloc"))
    compiled(tmp_path / "one", "one.so", "void cudaMalloc(); void f() { cudaMalloc(); }", str(runtime))
    assert [(need.library, need.support) for need in scan(tmp_path, {}).needs] == [
        ("libcudart.so.13", Support.NOT_SUPPORTED)
    ]


def test_a_release_that_is_not_emulated_is_unknown(tmp_path: Path) -> None:
    runtime = fake(tmp_path / "nvidia", "libcudart.so.99", "cudaMalloc")
    compiled(tmp_path / "one", "one.so", "void cudaMalloc(); void f() { cudaMalloc(); }", runtime)
    assert [need.support for need in scan(tmp_path, {}).needs] == [Support.UNKNOWN]


def test_symbols_without_a_version_belong_to_a_library_that_is_needed(tmp_path: Path) -> None:
    nccl = compiled(
        tmp_path / "nvidia", "libnccl.so.2", "void ncclSend() {} void cuInit() {}", "-Wl,-soname,libnccl.so.2"
    )
    compiled(tmp_path / "one", "one.so", "void ncclSend(), cuInit(); void f() { ncclSend(); cuInit(); }", str(nccl))
    assert [(need.library, need.function) for need in scan(tmp_path, {}).needs] == [("libnccl.so.2", "ncclSend")]


def test_names_that_are_looked_up_while_the_program_runs_are_found(tmp_path: Path) -> None:
    source = 'const char *const names[] = {"", "libcuda.so.1", "cuInit", "cuMemOfTomorrow", "cuInit_t", "custom"};'
    compiled(tmp_path, "one.so", source)
    found = {(need.library, need.function): need.support for need in scan(tmp_path, {}).needs}
    assert found == {
        ("libcuda.so.1", "cuInit"): Support.NOT_SUPPORTED,
        ("libcuda.so.1", "cuMemOfTomorrow"): Support.UNKNOWN,
    }


def test_names_in_a_file_that_opens_no_library_are_texts(tmp_path: Path) -> None:
    compiled(tmp_path, "one.so", 'const char *const names[] = {"", "cuInit", "cuDeviceGet"};')
    assert scan(tmp_path, {}).needs == ()


def test_a_linked_cuda_runtime_is_out_of_reach_but_its_needs_count(tmp_path: Path) -> None:
    nccl = compiled(tmp_path / "nvidia", "libnccl.so.2", "void ncclOfTomorrow() {}", "-Wl,-soname,libnccl.so.2")
    source = f'const char *const texts[] = {{"", "{STATIC}", "libcuda.so.1", "cuInit"}};'
    compiled(tmp_path, "one.so", source + "void ncclOfTomorrow(); void f() { ncclOfTomorrow(); }", str(nccl))
    found = scan(tmp_path, {})
    assert found.static == ("one.so",)
    assert [(need.function, need.support) for need in found.needs] == [("ncclOfTomorrow", Support.UNKNOWN)]


def test_pynvml_and_tritons_driver_are_read_as_source(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text('    fn = _nvmlGetFunctionPointer("nvmlInit_v2")\n')
    (tmp_path / "driver.c").write_text("CUDA_CHECK(cuDeviceGet(&device, 0)); cuLaunchKernelExHandle(x);\n")
    assert {need.function for need in scan(tmp_path, {}).needs} == {"nvmlInit_v2", "cuDeviceGet"}


def test_one_file_can_be_scanned_and_progress_is_told(tmp_path: Path) -> None:
    path = compiled(tmp_path, "one.so", "int x;")
    told: list[tuple[int, int]] = []
    assert scan(path, {}, lambda done, total: told.append((done, total))).files == 1
    assert told == [(0, 1), (1, 1)]


def test_damaged_files_and_links_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF" + bytes(20))
    (tmp_path / "link.so").symlink_to("/nosuch")
    assert scan(tmp_path, {}).needs == ()


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no library, program or virtual environment"):
        scan(tmp_path / "nosuch", {})


@pytest.mark.parametrize("release", RELEASES)
def test_the_lists_know_everything_that_torch_wants(release: str) -> None:
    found = scan(installed(release).environment, emulated_functions(built()))
    assert len(found.needs) > 700
    assert found.of(Support.UNKNOWN) == ()
