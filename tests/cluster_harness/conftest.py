"""A shell that answers from a table, for tests of what is run and what follows from the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from cluster_harness.shell import Done, Shell
from cluster_harness.steps import Note

Answer = str | Done | Callable[[list[str]], str | Done]


class FakeShell(Shell):
    """Answers are looked up by what the command line contains; unknown commands succeed without a word."""

    def __init__(self, answers: dict[str, Answer] | None = None, log: Path = Path("/dev/null")) -> None:
        super().__init__(log, {})
        self.answers = {} if answers is None else answers
        self.ran: list[str] = []
        self.inputs: dict[str, str] = {}

    def with_env(self, **variables: str) -> Shell:
        self.environ |= variables
        return self

    def attempt(
        self,
        *argv: str | Path,
        stdin: str | BinaryIO | None = None,
        cwd: Path | None = None,
        timeout_s: float = 0,
    ) -> Done:
        words = [Path(argv[0]).name, *map(str, argv[1:])]
        line = " ".join(words)
        self.ran.append(line)
        if isinstance(stdin, str):
            self.inputs[line] = stdin
        for part, answer in self.answers.items():
            if part in line:
                given = answer(words) if callable(answer) else answer
                return given if isinstance(given, Done) else Done(0, given, "")
        return Done(0, "", "")

    def count(self, part: str) -> int:
        return sum(part in line for line in self.ran)


class QuietSteps:
    """Remembers what would be shown."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float]] = []
        self.said: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[Note]:
        self.said.append(title)
        yield self.said.append
        self.taken.append((title, 0.0))

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def make_shell() -> type[FakeShell]:
    return FakeShell


@pytest.fixture
def steps() -> QuietSteps:
    return QuietSteps()
