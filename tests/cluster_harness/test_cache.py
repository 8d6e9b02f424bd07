"""Cache entries are complete or absent, are built once, and their name changes with their sources."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cluster_harness.cache import KEPT_PER_KIND, Cache, content_key, default_root
from emulator_runtime.domain.errors import ClusterError


def test_made_once_found_after(tmp_path: Path) -> None:
    cache, made = Cache(tmp_path), []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("x")

    first = cache.ensure("kind", "key", make)
    assert cache.ensure("kind", "key", make) == first == cache.path("kind", "key")
    assert len(made) == 1
    assert first.read_text() == "x"


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def make(path: Path) -> None:
        path.mkdir()
        (path / "half").write_text("x")
        raise ClusterError("no")

    with pytest.raises(ClusterError, match="no"):
        cache.ensure("kind", "key", make)
    assert not cache.has("kind", "key")
    assert [p.name for p in (tmp_path / "kind").iterdir()] == [".lock"]


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    left = tmp_path / "kind" / ".other.tmp"
    (left / "tree").mkdir(parents=True)
    cache.ensure("kind", "key", lambda path: path.mkdir())
    assert not left.exists()


def test_two_runs_at_once_make_it_once(tmp_path: Path) -> None:
    made, said = [], []
    begun, go_on = threading.Event(), threading.Event()
    cache = Cache(tmp_path, said.append)

    def slow(path: Path) -> None:
        made.append("slow")
        begun.set()
        assert go_on.wait(10)
        path.write_text("slow")

    first = threading.Thread(target=cache.ensure, args=("kind", "key", slow))
    first.start()
    assert begun.wait(10)
    second = threading.Thread(target=cache.ensure, args=("kind", "key", lambda path: made.append("second")))
    second.start()
    while not said and second.is_alive():
        second.join(0.01)
    go_on.set()
    first.join(10)
    second.join(10)
    assert made == ["slow"]
    assert "waiting" in said[0]


def test_old_entries_go_the_used_ones_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for index in range(KEPT_PER_KIND):
        path = cache.ensure("kind", f"{index}", lambda path: path.mkdir())
        os.utime(path, (index, index))
    cache.ensure("kind", "0", lambda path: path.mkdir())  # used again, so the oldest is 1
    cache.ensure("kind", "new", lambda path: path.mkdir())
    assert not cache.has("kind", "1")
    assert cache.has("kind", "0") and cache.has("kind", "new") and cache.has("kind", "2")


def test_the_key_changes_with_content_name_and_execute_bit(tmp_path: Path) -> None:
    file = tmp_path / "a" / "file"
    file.parent.mkdir()
    file.write_text("1")
    keys = [content_key(tmp_path / "a")]
    file.write_text("2")
    keys.append(content_key(tmp_path / "a"))
    file.chmod(0o755)
    keys.append(content_key(tmp_path / "a"))
    file.rename(file.with_name("other"))
    keys.append(content_key(tmp_path / "a"))
    assert len(set(keys)) == 4
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "x.pyc").write_text("x")
    assert content_key(tmp_path / "a") == keys[-1]


def test_parts_are_not_run_together() -> None:
    assert content_key("ab", "c") != content_key("a", "bc")


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"gone: doesn't exist"):
        content_key(tmp_path / "gone")


def test_where_it_is(tmp_path: Path) -> None:
    assert default_root({"EMUGPU_CACHE": "/x"}) == Path("/x")
    assert default_root({"XDG_CACHE_HOME": "/y"}) == Path("/y/emugpu")
    assert default_root({}) == Path.home() / ".cache" / "emugpu"
