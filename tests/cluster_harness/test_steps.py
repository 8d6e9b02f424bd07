"""Steps in a log: a line at once, one every so often, one at the end; and none of them after a failure."""

from __future__ import annotations

import threading

import pytest

from cluster_harness.steps import PlainSteps, Progress


def test_progress_in_words() -> None:
    assert str(Progress(3, 7, "images")) == "3 of 7 images"
    assert str(Progress(120, None, "modules downloaded", "k8s.io/api")) == "120 modules downloaded (k8s.io/api)"


def test_a_step_has_a_line_at_its_beginning_and_its_end() -> None:
    written: list[str] = []
    ticks = iter((0, 1_500_000_000))
    steps = PlainSteps(written.append, lambda: next(ticks))
    with steps.step("build") as report:
        report(Progress(1, 2, "packages"))
    steps.say("done")
    assert written == ["build", "build: done in 1.5 s", "done"]
    assert steps.taken == [("build", 1.5)]


def test_a_running_step_shows_its_progress_every_so_often() -> None:
    written: list[str] = []
    both = threading.Event()

    def write(text: str) -> None:
        written.append(text)
        if sum("so far" in line for line in written) >= 2:
            both.set()

    steps = PlainSteps(write, lambda: 90_000_000_000, heartbeat_s=0.01)
    with steps.step("build") as report:
        report(Progress(120, 3793, "packages", "k8s.io/api"))
        assert both.wait(10)
    assert written.count("build: 120 of 3793 packages (k8s.io/api), 0 s so far") >= 1
    assert written[-1] == "build: done in 0.0 s"


def test_a_silent_step_shows_the_time() -> None:
    written: list[str] = []
    beat = threading.Event()
    steps = PlainSteps(lambda text: (written.append(text), "so far" in text and beat.set())[0], lambda: 0, 0.01)
    with steps.step("pull"):
        assert beat.wait(10)
    assert "pull: 0 s so far" in written


def test_a_step_that_fails_ends_its_lines() -> None:
    written: list[str] = []
    steps = PlainSteps(written.append, lambda: 0, heartbeat_s=0.01)
    with pytest.raises(KeyboardInterrupt), steps.step("build"):
        raise KeyboardInterrupt
    assert not [line for line in written if "done" in line]
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
