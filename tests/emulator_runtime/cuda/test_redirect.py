"""The redirector, in processes that have it: it can't be loaded otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import LIBRARIES_VARIABLE, REDIRECTOR, build, built
from tests.support.torch_releases import RELEASES, installed

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARIES_VARIABLE, raising=False)


def python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LD_AUDIT": str(built() / REDIRECTOR)} | environ
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("libcudart.so.13", "libcudart.so.13"),
        ("libcuda.so", "libcuda.so.1"),
        ("/usr/local/cuda/lib64/libcudart.so.12", "libcudart.so.12"),
        ("/nosuch/libcudart.3eda8113.so.13", "libcudart.so.13"),
        ("libnvidia-ml.so.1", "libnvidia-ml.so.1"),
        ("libnccl.so.2", "libnccl.so.2"),
    ],
)
def test_a_library_is_found_by_name_and_by_path(asked: str, given: str) -> None:
    done = python(f"import ctypes; ctypes.CDLL({asked!r}); print(open('/proc/self/maps').read())")
    assert done.returncode == 0, done.stderr
    assert f"{built()}/{given}" in done.stdout


@pytest.mark.parametrize("asked", ["libcudart.so.99", "libcuriosity.so", "libcu.so", "libcudart.3eda8113.so.99"])
def test_a_library_that_is_not_emulated_is_left_to_the_system(asked: str) -> None:
    done = python(f"import ctypes; ctypes.CDLL({asked!r})")
    assert f"OSError: {asked}: cannot open shared object file" in done.stderr


def test_another_directory_can_be_named(tmp_path: Path) -> None:
    build(tmp_path)
    code = "import ctypes; ctypes.CDLL('libcudart.so.13'); print(open('/proc/self/maps').read())"
    done = python(code, **{LIBRARIES_VARIABLE: str(tmp_path)})
    assert f"{tmp_path}/libcudart.so.13" in done.stdout


@pytest.mark.parametrize("directory", ["relative", "", "/" + 2000 * "x"])
def test_a_useless_directory_harms_nobody(directory: str) -> None:
    assert python("print('runs')", **{LIBRARIES_VARIABLE: directory}).stdout == "runs\n"


def test_names_of_any_length_harm_nobody() -> None:
    code = (
        "import ctypes\n"
        "for length in (1, 120, 121, 122, 123, 127, 128, 129, 5000):\n"
        "    try: ctypes.CDLL('libcu' + length * 'x')\n"
        "    except OSError: print(length)"
    )
    assert len(python(code).stdout.split()) == 9


def test_shells_and_what_they_start_are_not_disturbed() -> None:
    environment = os.environ | {"LD_AUDIT": str(built() / REDIRECTOR)}
    done = subprocess.run(["sh", "-c", "echo one | cat"], capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("one\n", "")


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two libraries as in a wheel: one wants the CUDA runtime under a name with a hash, the other under its own name."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "fake.c").write_text("void cudaMalloc(void) {}\n")
    (folder / "fake.version").write_text("libcudart.so.13 { global: *; };\n")
    (folder / "user.c").write_text(
        "int cudaMalloc(void *, unsigned long); int use(void) { return cudaMalloc(0, 0); }\n"
    )
    for soname, user in {"libcudart.3eda8113.so.13": "renamed.so", "libcudart.so.13": "plain.so"}.items():
        fake = ["-Wl,--version-script=fake.version", f"-Wl,-soname,{soname}", "fake.c", "-o", soname]
        subprocess.run(["cc", "-shared", "-fPIC", *fake], cwd=folder, check=True)
        subprocess.run(["cc", "-shared", "-fPIC", "user.c", f"./{soname}", "-o", user], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("order", ["renamed.so plain.so", "plain.so renamed.so", "renamed.so", "renamed.so renamed.so"])
def test_a_renamed_library_is_the_same_one_in_a_process(renamed: Path, order: str) -> None:
    """The names are versioned: glibc ends the process if it can't find the library again by the name that a user wants."""
    code = (
        f"import ctypes\nfor name in {order.split()!r}: assert ctypes.CDLL({str(renamed)!r} + '/' + name).use() != 0\n"
    )
    code += "print({line.split()[-1] for line in open('/proc/self/maps') if 'r-x' in line and 'libcudart' in line})"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("libcudart") == 1


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("how", ["LD_AUDIT", "LD_PRELOAD"])
def test_torch_without_any_library_of_nvidias_is_imported(release: str, how: str) -> None:
    options = ["--preload"] if how == "LD_PRELOAD" else []
    command = [sys.executable, "-m", "emugpu", "run", *options, "--", str(installed(release).python)]
    code = "import torch, torchvision.io; print(torch.version.cuda is not None)"
    done = subprocess.run([*command, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "True\n", done.stderr
