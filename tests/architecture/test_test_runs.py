"""How a test run is organised: tests that are alone, and skips that fail in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CASES = """
import pathlib, time
import pytest

LOG = pathlib.Path(__file__).with_name("log")

def note(what):
    with LOG.open("a") as log:
        log.write(what + "\\n")

def running(name):
    note(f"+{name}")
    time.sleep(0.05)
    note(f"-{name}")

@pytest.mark.parametrize("n", range(6))
def test_together(n):
    running("together")

@pytest.mark.alone
@pytest.mark.parametrize("n", range(3))
def test_alone(n):
    running("alone")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Tests of their own, organised by our conftest."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "README.md").touch()
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  alone: x\n  processes: x\n  slow: x\naddopts = --import-mode=importlib\n"
    )
    return tmp_path


def run(project: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)


def test_nothing_runs_beside_a_test_that_is_alone(project: Path) -> None:
    for name in ("test_one.py", "test_two.py", "test_three.py"):
        (project / name).write_text(CASES)
    done = run(project, "--numprocesses", "3", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert done.returncode == 0, done.stdout
    lines = (project / "log").read_text().splitlines()
    assert len(lines) == 3 * 2 * 9
    assert lines.index("-together") > 1  # others do run side by side
    for index, line in enumerate(lines):
        if line == "+alone":
            assert lines[index + 1] == "-alone"
            assert lines[:index].count("+together") == lines[:index].count("-together")


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_in_ci_a_skip_of_a_proof_fails_the_run_and_skips_are_counted(project: Path, ci: str, status: int) -> None:
    proof = project / "operators" / "api" / "test_api_pages.py"
    proof.parent.mkdir(parents=True)
    proof.write_text("import pytest\ndef test_page():\n    pytest.skip('no browser')\n")
    skipping = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_x(n):\n    pytest.skip('no luck')\n"
    (project / "test_other.py").write_text(skipping)
    done = run(project, CI=ci)
    assert done.returncode == status, done.stdout
    assert "    2  no luck\n" in done.stdout
    if ci:
        assert "pages in a browser: may not be skipped in CI. no browser" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("1 failed, 2 skipped in ")
    else:
        assert "= 3 tests were skipped =" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("3 skipped in ")


def test_every_file_that_proves_something_exists() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("conftest_of_all_tests", TESTS / "conftest.py")
    assert spec is not None and spec.loader is not None
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    assert [path for paths in conftest.MUST_RUN.values() for path in paths if not (TESTS / path).exists()] == []
    assert [path for path in conftest.SLOW if not (TESTS / path).exists()] == []
