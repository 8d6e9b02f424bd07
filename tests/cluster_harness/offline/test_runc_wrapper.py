"""The wrapper removes the one capability with which runc would fail, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_harness.offline import runc_wrapper
from cluster_harness.offline.runc_wrapper import CAPABILITY, is_missing, specification_of, without_capability

PROCESS = {
    "args": ["sh"],
    "oomScoreAdj": -500,
    "capabilities": {"bounding": ["CAP_KILL", CAPABILITY], "effective": [CAPABILITY], "ambient": []},
}


def test_missing_is_read_from_the_bounding_set() -> None:
    assert is_missing("Name:\tx\nCapBnd:\t000001fffeffffff\n")
    assert not is_missing("Name:\tx\nCapBnd:\t000001ffffffffff\n")


def test_the_capability_goes_and_a_negative_score_becomes_zero() -> None:
    changed = without_capability(PROCESS)
    assert changed["capabilities"] == {"bounding": ["CAP_KILL"], "effective": [], "ambient": []}
    assert changed["oomScoreAdj"] == 0
    assert changed["args"] == ["sh"]
    assert without_capability({"oomScoreAdj": 100})["oomScoreAdj"] == 100
    assert "oomScoreAdj" not in without_capability({})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--root /r --log /l create --bundle /b --pid-file /p id", ("/b/config.json", True)),
        ("run -b /b id", ("/b/config.json", True)),
        ("create --bundle=/b id", ("/b/config.json", True)),
        ("create id", ("config.json", True)),
        ("exec --process /p.json --detach id", ("/p.json", False)),
        ("exec id sh", None),
        ("kill id 9", None),
        ("--version", None),
    ],
)
def test_which_file_a_command_line_is_about(line: str, expected: tuple[str, bool] | None) -> None:
    found = specification_of(line.split())
    assert (found and (str(found[0]), found[1])) == expected


def test_as_a_program_it_rewrites_and_becomes_the_real_runtime(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"ociVersion": "1", "process": PROCESS}))
    runtime = tmp_path / "runc"
    runtime.write_text('#!/bin/sh\necho "real $*"\n')
    runtime.chmod(0o755)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(runc_wrapper.script(sys.executable, str(runtime)))
    wrapper.chmod(0o755)
    done = subprocess.run([wrapper, "create", "--bundle", tmp_path, "id"], capture_output=True, text=True, check=True)
    assert done.stdout == f"real create --bundle {tmp_path} id\n"
    written = json.loads((tmp_path / "config.json").read_text())
    assert written == {"ociVersion": "1", "process": without_capability(PROCESS)}


def test_a_process_file_of_exec_is_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "process.json"
    file.write_text(json.dumps(PROCESS))
    runc_wrapper.rewrite(["exec", "--process", str(file), "id"])
    assert json.loads(file.read_text()) == without_capability(PROCESS)
