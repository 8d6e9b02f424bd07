"""What a training container pays: the job process and the manager import the standard library only."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "yaml", "rich", "plotly", "torch", "grpc", "google", "kubernetes", "redis", "asyncio"}


@pytest.mark.parametrize("module", ["emulator_runtime.workloads.__main__", "sharing_manager.__main__"])
def test_a_job_and_a_manager_import_no_package(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_simulating_without_allox_needs_no_scipy() -> None:
    code = "import sys; import scheduler_sims.policies.resolve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scipy" not in done.stdout.split()
