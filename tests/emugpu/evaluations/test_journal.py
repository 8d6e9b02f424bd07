"""The journal of evaluations: torn lines, other subjects, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from emugpu.evaluations.journal import Journal
from emulator_runtime.domain.errors import EmuGpuError

SUBJECT = {"files": ("a", "b"), "seed": 1}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", SUBJECT, "sweep")
    assert journal.read() == []
    journal.append({"x": 1})
    journal.append({"x": 2.5})
    assert Journal(tmp_path / "j", SUBJECT, "sweep").read() == [{"x": 1}, {"x": 2.5}]


def test_a_torn_last_line_is_forgotten_and_the_next_one_has_a_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", SUBJECT, "sweep")
    journal.read()
    journal.append({"x": 1})
    with (tmp_path / "j").open("ab") as file:
        file.write('{"x": 2, "name": "é'.encode()[:-1])  # within a character
    assert journal.read() == [{"x": 1}]
    journal.append({"x": 3})
    assert journal.read() == [{"x": 1}, {"x": 3}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"other": 1}\n', "is of another sweep; name another folder by --out, or delete it"),
        ("", "isn't what this command writes"),
        ("{}garbage\n", "isn't what this command writes"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "j").write_text(text)
    with pytest.raises(EmuGpuError, match=problem):
        Journal(tmp_path / "j", SUBJECT, "sweep").read()


def test_damaged_lines_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", SUBJECT, "sweep")
    journal.read()
    for line in ("nothing\n", "3\n"):
        whole = (tmp_path / "j").read_text()
        with (tmp_path / "j").open("a") as file:
            file.write(line)
        with pytest.raises(EmuGpuError, match="isn't what this command writes"):
            journal.read()
        (tmp_path / "j").write_text(whole)
