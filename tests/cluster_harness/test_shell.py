"""Programs that fail, hang or are missing become one line that names them; everything else is in the log."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from cluster_harness import shell as shell_module
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "logs" / "log")


def test_output_and_input(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("cat", stdin="hello") == "hello"
    assert shell.run("cat") == ""
    (tmp_path / "file").write_text("from a file")
    with (tmp_path / "file").open("rb") as file:
        assert shell.run("cat", stdin=file) == "from a file"
    assert shell.with_env(COLOUR="red").run("sh", "-c", "echo $COLOUR") == "red\n"


def test_a_failure_shows_the_last_words_and_the_log(shell: Shell) -> None:
    with pytest.raises(ClusterError) as caught:
        shell.run("sh", "-c", "echo out; echo one >&2; echo two >&2; exit 7")
    assert "ended with 7: one | two" in str(caught.value)
    assert str(shell.log) in str(caught.value)
    assert "exit 7\nout\none\ntwo" in shell.log.read_text()


def test_a_failure_without_words(shell: Shell) -> None:
    with pytest.raises(ClusterError, match="no output"):
        shell.run("false")


def test_attempt_reports_instead(shell: Shell) -> None:
    assert not shell.attempt("false").ok
    assert shell.attempt("true").ok


def test_a_missing_program_is_named(shell: Shell) -> None:
    with pytest.raises(ClusterError, match="no-such-program: isn't installed"):
        shell.run("no-such-program", "--help")


def test_a_program_that_hangs_is_ended(shell: Shell) -> None:
    with pytest.raises(ClusterError, match="didn't end within 0 s"):
        shell.run("sleep", "30", timeout_s=0.1)
    assert "no end after" in shell.log.read_text()


def test_long_command_lines_are_shortened(shell: Shell) -> None:
    with pytest.raises(ClusterError) as caught:
        shell.run("false", "x" * 500)
    assert "x" * 200 not in str(caught.value)


def test_stdin_of_a_caller_is_not_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret"))
    assert shell.run("cat") == ""


def test_a_long_program_is_read_line_by_line(shell: Shell) -> None:
    lines: list[str] = []
    shell.stream("sh", "-c", "echo one; echo two >&2; printf three", on_line=lines.append)
    assert lines == ["one", "two", "three"]
    assert "\none\ntwo\nthree\nexit 0\n" in shell.log.read_text()


def test_a_long_program_that_fails_shows_its_last_lines(shell: Shell) -> None:
    with pytest.raises(ClusterError, match=r"ended with 7: one \| two"):
        shell.stream("sh", "-c", "echo one; echo two; exit 7", on_line=lambda _line: None)
    with pytest.raises(ClusterError, match="no-such-program: isn't installed"):
        shell.stream("no-such-program", on_line=lambda _line: None)


def test_a_silent_program_gives_time_to_show_progress(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "_IDLE_S", 0.01)
    idle: list[None] = []
    shell.stream("sleep", "0.2", on_line=lambda _line: None, on_idle=lambda: idle.append(None))
    assert idle


@pytest.mark.processes
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterError("stop")])
def test_an_interrupted_program_ends_with_its_children(shell: Shell, error: BaseException) -> None:
    children: list[int] = []

    def interrupt(line: str) -> None:
        children.append(int(line))
        raise error

    with pytest.raises(type(error)):
        shell.stream("sh", "-c", "sleep 60 & echo $!; wait", on_line=interrupt)
    deadline = time.monotonic() + 10
    while _runs(children[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(children[0])


def test_a_long_program_that_hangs_is_ended(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_module, "_IDLE_S", 0.01)
    with pytest.raises(ClusterError, match="didn't end within 0 s"):
        shell.stream("sleep", "30", on_line=lambda _line: None, timeout_s=0.1)


def _runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
