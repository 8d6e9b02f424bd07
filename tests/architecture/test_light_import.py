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
    code = "import sys; import emugpu.comparison.runs, scheduler_sims.policies.resolve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scipy" not in done.stdout.split()


def test_help_for_simulate_imports_no_simulator() -> None:
    code = (
        "import sys, atexit; atexit.register(lambda: print('MODULES', *sys.modules)); "
        "from emugpu.__main__ import main; main(['simulate', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name.partition(".")[0] for name in done.stdout.partition("MODULES")[2].split()}
    assert "emugpu" in found
    assert not found & {*HEAVY, "scheduler_sims", "operators"}


def test_the_job_controller_needs_no_scheduler() -> None:
    """The image has neither the schedulers nor their libraries."""
    code = (
        "import sys, operators.jobs.__main__, operators.results.reading; print(*{n.split('.')[0] for n in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "scheduler_sims", "emugpu", "rich", "plotly"} & set(done.stdout.split())


def test_the_scheduler_program_draws_nothing() -> None:
    """Its image has what policies compute with, and nothing for tables and charts."""
    code = "import sys; import operators.scheduling.program, emugpu.commands.scheduler; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name.partition(".")[0] for name in done.stdout.split()}
    assert not found & {"rich", "plotly", "cluster_harness", "starlette", "redis"}


def test_a_runner_of_experiments_draws_nothing() -> None:
    """It runs in the scheduler's image."""
    code = "import sys; import operators.experiments.runner.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name.partition(".")[0] for name in done.stdout.split()}
    assert not found & {"rich", "plotly", "cluster_harness", "starlette", "redis", "emugpu"}
