"""Which engine is used: the one that answers, ours, or one that is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_harness import engine as engine_module
from cluster_harness.cache import Cache
from cluster_harness.engine import ensure_engine, running_engine
from cluster_harness.offline.docker_daemon import OwnDaemon
from emulator_runtime.domain.errors import ClusterError


def test_an_engine_that_answers_is_used(tmp_path: Path, shell, steps) -> None:  # type: ignore[no-untyped-def]
    engine = ensure_engine(Cache(tmp_path), shell, steps)
    assert (engine.version, engine.own, steps.titles) == ("28.0", None, [])


def test_without_docker_no_engine_answers(tmp_path: Path, shell) -> None:  # type: ignore[no-untyped-def]
    shell.environ["PATH"] = str(tmp_path)
    assert running_engine(Cache(tmp_path), shell) is None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines of our own have their sockets, for this test alone."""
    directory = tmp_path / "run"
    directory.mkdir()
    monkeypatch.setattr(engine_module, "OwnDaemon", lambda root: OwnDaemon(root, run=directory))
    return directory


@pytest.mark.parametrize("answers", [True, False])
def test_one_is_started_where_none_answers(  # type: ignore[no-untyped-def]
    tmp_path: Path, shell, steps, machine, run: Path, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    machine.engine_runs = False

    def start(_daemon: OwnDaemon, _shell: object) -> Iterator[str]:
        machine.engine_runs = answers
        yield "dockerd 1"

    monkeypatch.setattr(OwnDaemon, "start", start)
    if answers:
        assert ensure_engine(Cache(tmp_path / "cache"), shell, steps).version == "28.0"
        assert (steps.titles, steps.said) == (["start a Docker engine"], ["  dockerd 1"])
    else:
        with pytest.raises(ClusterError, match="that was started doesn't answer; the log says why"):
            ensure_engine(Cache(tmp_path / "cache"), shell, steps)


def test_an_engine_of_another_cache_is_used_and_not_ended(tmp_path: Path, run: Path, shell, machine) -> None:  # type: ignore[no-untyped-def]
    (run / "docker.sock").touch()
    (run / "owner").write_text(str(tmp_path / "first" / "engine"))
    machine.answers_at = f"unix://{run / 'docker.sock'}"
    first, second = (running_engine(Cache(tmp_path / name), shell) for name in ("first", "second"))
    assert first is not None and first.own is not None
    assert second is not None and second.own is None
    assert second.shell.environ["DOCKER_HOST"] == machine.answers_at
