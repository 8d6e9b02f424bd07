"""Programs that call the emulated driver and runtime through ctypes; each runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built

HERE = Path(__file__).parent
DEVICE: dict[str, object] = {
    "name": "Emulated A100",
    "memory_bytes": 1 << 30,
    "context_bytes": 1 << 20,
    "capability_major": 8,
    "capability_minor": 0,
    "multiprocessors": 108,
    "clock_khz": 1410000,
    "memory_clock_khz": 1215000,
    "memory_bus_bits": 5120,
    "l2_bytes": 40 << 20,
    "flops_fp32": 1e13,
    "memory_bytes_per_s": 1e12,
    "host_link_bytes_per_s": 1e10,
}


def settings_text(devices: int, kernel_ns: int, device: dict[str, object]) -> str:
    """A settings file for equal devices on which each kernel takes `kernel_ns`."""
    lines = ["emugpu-cuda 1", "estimator constant", f"constant_ns {kernel_ns}"]
    for index in range(devices):
        lines += [
            f"device {index}",
            f"uuid GPU-{uuid.uuid4()}",
        ]  # processes with the same device would share its memory
        lines += [f"{key} {value}" for key, value in (DEVICE | device).items()]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def cuda_libraries() -> Path:
    return built()


@pytest.fixture
def run_cuda(cuda_libraries: Path, tmp_path: Path) -> Callable[..., str]:
    """`run_cuda(code)`: what the program prints; `cuda` and `driver` of cuda_calls.py are at its hands.

    `release`: 12 or 13, of the runtime. `devices`, `device`: how many, and what differs from the usual one. `kernel_ns`: what
    each kernel takes.
    """

    def run(
        code: str,
        *,
        release: int = 13,
        devices: int = 1,
        kernel_ns: int = 1_000_000,
        timeout_s: float = 60,
        **device: object,
    ) -> str:
        file = tmp_path / "settings"
        file.write_text(settings_text(devices, kernel_ns, device), encoding="ascii")
        environment = os.environ | {
            "PYTHONPATH": str(HERE),
            "PYTHONFAULTHANDLER": "1",
            "CUDA_LIBRARIES": str(cuda_libraries),
            "CUDA_RELEASE": str(release),
            "EMUGPU_CUDA_SETTINGS": str(file) if devices else "",
        }
        program = "from cuda_calls import *\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
