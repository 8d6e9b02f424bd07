"""A reader finds the old file or the new one, and a writer that fails leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emulator_runtime.files import replacing, write_new, write_whole


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_text("old")
    return path


def bits(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(("content", "expected"), [("é\r\n", b"\xc3\xa9\r\n"), (b"\x00\xff", b"\x00\xff")])
def test_the_content_as_it_is_and_nothing_else(file: Path, content: str | bytes, expected: bytes) -> None:
    write_whole(file, content, sync=True)
    assert file.read_bytes() == expected
    assert names(file.parent) == ["a.json"]


def test_who_has_the_old_file_open_keeps_it(file: Path) -> None:
    with file.open() as reader:
        write_whole(file, "new", sync=False)
        assert reader.read() == "old"
    assert file.read_text() == "new"


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o644, 0o644), (0o600, 0o600), (0o666, 0o666)])
def test_permission_bits(file: Path, mode: int | None, expected: int) -> None:
    before = os.umask(0o027)
    try:
        write_whole(file, "new", sync=False, mode=mode)
    finally:
        os.umask(before)
    assert bits(file) == expected


@pytest.mark.parametrize("sync", [False, True])
def test_it_is_on_the_disk_before_it_takes_its_place(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, sync: bool
) -> None:
    synced: list[tuple[int, str]] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_size, file.read_text())))
    write_whole(file, "longer", sync=sync)
    assert synced == ([(6, "old")] if sync else [])


def test_a_disk_that_fails_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new", sync=True)
    assert file.read_text() == "old"
    assert names(file.parent) == ["a.json"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_the_old_file(file: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), replacing(file) as unfinished:
        unfinished.write_text("half")
        raise error
    assert file.read_text() == "old"
    assert names(file.parent) == ["a.json"]


def test_a_place_that_cannot_be_taken(tmp_path: Path) -> None:
    (tmp_path / "a" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        write_whole(tmp_path / "a", "new", sync=False)
    assert names(tmp_path) == ["a"]


def test_a_text_that_cannot_be_written_is_refused_before_there_is_a_file(file: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "\ud800", sync=False)
    assert file.read_text() == "old"


def test_what_a_killed_writer_left_is_no_obstacle_and_gives_nothing(file: Path) -> None:
    left = file.with_name("a.json.new")
    left.write_text("left over, and longer than the rest")
    left.chmod(0o666)
    write_whole(file, "new", sync=False, mode=0o600)
    assert (file.read_text(), bits(file), names(file.parent)) == ("new", 0o600, ["a.json"])


def test_a_link_that_lies_there_is_not_followed(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("other")
    file.with_name("a.json.new").symlink_to(other)
    write_whole(file, "new", sync=False)
    assert (file.read_text(), other.read_text(), file.is_symlink()) == ("new", "other", False)


def test_another_unfinished_name(file: Path) -> None:
    with replacing(file, file.with_name("mine")) as unfinished:
        assert unfinished.name == "mine"
        unfinished.write_text("new")
    assert (file.read_text(), names(file.parent)) == ("new", ["a.json"])


def test_a_new_file_replaces_none(file: Path) -> None:
    with pytest.raises(FileExistsError):
        write_new(file, b"new", sync=False)
    assert file.read_text() == "old"
