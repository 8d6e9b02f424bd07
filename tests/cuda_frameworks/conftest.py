"""Programs that use PyTorch, each started by `emugpu run` as a user would start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built
from emulator_runtime.cuda.launch import environment
from tests.support.torch_releases import RELEASES, TorchRelease, installed

HERE = Path(__file__).parent
RunProgram = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> TorchRelease:
    return installed(request.param)


@pytest.fixture
def run_program(release: TorchRelease, tmp_path: Path) -> RunProgram:
    """`run_program(*words, by="run", options=(), emulated=True, status=0, **environ)`: Python with these words.

    `by`, `options`: the command of emugpu that starts it, and its options. `emulated`: whether it has GPUs; otherwise
    emugpu's libraries are there, without which this installation of PyTorch can't be imported, and have no devices.
    `status`: its expected exit status; None for any. Its directory is the test's own.
    """

    def run(
        *words: str | Path,
        by: str = "run",
        options: tuple[str, ...] = (),
        emulated: bool = True,
        status: int | None = 0,
        timeout_s: float = 170,
        **environ: str,
    ) -> subprocess.CompletedProcess[str]:
        command = [str(release.python), *map(str, words)]
        variables = _environment(tmp_path) | environ
        if emulated:
            command = [sys.executable, "-m", "emugpu", by, *options, "--", *command]
        else:
            variables = environment(built(), tmp_path / "no settings", variables)
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done

    return run


def _environment(folder: Path) -> dict[str, str]:
    """One thread for each computing library, since tests run side by side; statistics and caches are the test's own."""
    return os.environ | {
        "EMUGPU_CUDA_STATISTICS": str(folder),
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
