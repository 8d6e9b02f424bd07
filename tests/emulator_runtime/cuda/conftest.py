"""Programs that use the emulated CUDA libraries; each runs in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built

HERE = Path(__file__).parent
DEVICE = {
    "name": "Emulated",
    "uuid": "GPU-00000000-0000-0000-0000-000000000001",
    "memory_bytes": 1 << 30,
    "context_bytes": 1 << 20,
    "capability_major": 8,
    "flops_fp32": 1e13,
    "memory_bytes_per_s": 1e12,
    "host_link_bytes_per_s": 1e10,
}


def settings_text(devices: int = 1, device: dict[str, object] | None = None, **process: object) -> str:
    """A settings file for equal devices; by default each kernel takes 1 ms."""
    fields = {"estimator": "constant", "constant_ns": 1_000_000} | process
    lines = ["emugpu-cuda 1", *(f"{key} {value}" for key, value in fields.items())]
    for index in range(devices):
        lines.append(f"device {index}")
        uuid = f"GPU-00000000-0000-0000-0000-{index + 1:012}"
        lines += [f"{key} {value}" for key, value in (DEVICE | {"uuid": uuid} | (device or {})).items()]
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def own_statistics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Devices of tests that run at the same time have the same UUIDs, but no memory in common."""
    monkeypatch.setenv("EMUGPU_CUDA_STATISTICS", str(tmp_path))


@pytest.fixture(scope="session")
def libraries() -> Path:
    return built()


@pytest.fixture
def run_core(libraries: Path, tmp_path: Path) -> Callable[..., str]:
    """`run_core(code, **settings)`: what the program prints; `core`, a Core, is at its hands. `expect`: its exit status."""

    def run(code: str, *, expect: int = 0, text: str | None = None, timeout_s: float = 60, **settings: object) -> str:
        file = tmp_path / "settings"
        if trace := settings.get("trace"):
            Path(str(trace)).unlink(missing_ok=True)  # as `emugpu run` does
        file.write_text(text if text is not None else settings_text(**settings), encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "CORE": str(libraries / "libemugpu_core.so"),
            "EMUGPU_CUDA_SETTINGS": str(file),
        }
        program = "from core_calls import *\ncore = Core()\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run
