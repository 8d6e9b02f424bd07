"""What an interpreter with virtual ranks loads. torch itself: tests/cuda_frameworks/test_virtual_ranks.py."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from emulator_runtime.virtual_ranks import hooks_folder


def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks_under_test", hooks_folder() / "emugpu_virtual_objects.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_objects_come_from_a_rank_that_has_left_them(tmp_path: Path) -> None:
    mail = hooks().Mail(str(tmp_path), {0})
    mail.leave(("broadcast", "0", 1), ["a", 2])
    assert mail.take(("broadcast", "0", 1), 0) == (["a", 2],)
    (tmp_path / "ended-0").touch()
    assert mail.take(("broadcast", "0", 2), 0) is None, "another one isn't there, and the rank has ended"


def test_nobody_waits_for_a_rank_that_does_not_run(tmp_path: Path) -> None:
    assert hooks().Mail(str(tmp_path), {0}).take(("broadcast", "0", 1), 7) is None


def test_a_rank_waits_for_one_that_runs(tmp_path: Path) -> None:
    mail = hooks().Mail(str(tmp_path), {0}, pause_s=0.001)
    later = threading.Timer(0.05, mail.leave, [("send", 1), [None]])
    later.start()
    assert mail.take(("send", 1), 0) == ([None],)
    later.join()


def run(code: str, folder: Path, **variables: str) -> str:
    path = os.pathsep.join([str(hooks_folder()), str(folder)])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_interpreter_still_loads_its_own_site_module(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.own_site = 'loaded'\n")
    assert run("print(own_site)", tmp_path) == "loaded\n"


def test_nothing_is_patched_without_virtual_ranks(tmp_path: Path) -> None:
    code = "import sys; print([type(one).__name__ for one in sys.meta_path if type(one).__name__ == '_Finder'])"
    assert run(code, tmp_path) == "[]\n"
    assert run(code, tmp_path, EMUGPU_VIRTUAL_RANKS="4") == "[]\n", "a process that is no rank"
    assert run(code, tmp_path, EMUGPU_VIRTUAL_RANKS="4", RANK="0") == "['_Finder']\n"
