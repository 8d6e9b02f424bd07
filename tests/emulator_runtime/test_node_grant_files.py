"""Grants on disk: complete or absent, ordered in time, and no token among them."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import grant_files
from emulator_runtime.node.grant_files import LAST_FILE, GrantFiles, token_digest

IDS = ("GPU-a", "GPU-b")


@pytest.fixture
def problems():
    return []


@pytest.fixture
def files(tmp_path, problems):
    return GrantFiles(tmp_path, lambda: 1_000, problems.append)


def grants_in(directory):
    """What lies there, but for the note of the last time."""
    return [path.name for path in directory.iterdir() if path.name != LAST_FILE]


def test_what_was_minted_can_be_read(files, tmp_path):
    token, record = files.mint("a.b/c", IDS, {0: {"uuid": "GPU-a"}, 7: {"uuid": "GPU-b"}})
    assert len(token) == 64
    assert (record.token_digest, record.grant_id) == (token_digest(token), token_digest(token)[:32])
    assert (record.resource, record.device_ids, record.minted_ns) == ("a.b/c", IDS, 1_000)
    other = GrantFiles(tmp_path, lambda: 0)
    assert other.read(token) == record
    assert other.all() == [record]
    assert json.loads((files.edev_dir(record.grant_id) / "7").read_text()) == {"uuid": "GPU-b"}


def test_settings_for_cuda_programs(files):
    _, without = files.mint("a.b/c", IDS, {0: {}})
    _, record = files.mint("a.b/c", IDS, {0: {}}, "one")
    file = files.cuda_dir(record.grant_id) / "settings"
    assert (file.read_text(), file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == ("one", 0o644, 0o755)
    inode = file.stat().st_ino
    files.replace_cuda_settings(record.grant_id, "one")
    assert file.stat().st_ino == inode
    files.replace_cuda_settings(record.grant_id, "two")
    assert file.read_text() == "two"
    files.replace_cuda_settings(without.grant_id, "two")  # nothing mounts it
    assert not files.cuda_dir(without.grant_id).exists()


def test_nothing_on_disk_tells_the_token(files, tmp_path):
    token, record = files.mint("a.b/c", IDS, {0: {}})
    assert token not in "".join(
        path.name + (path.read_text() if path.is_file() else "") for path in tmp_path.rglob("*")
    )
    assert files.read(record.grant_id) is None
    assert files.read(record.token_digest) is None


def test_modes_whatever_the_umask(files):
    before = os.umask(0o077)
    try:
        _, record = files.mint("a.b/c", IDS, {0: {}})
    finally:
        os.umask(before)
    directory = files.path(record.grant_id)
    paths = [directory, directory / "grant.json", directory / "edev", directory / "edev" / "0"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o755, 0o600, 0o755, 0o644]


def test_minted_times_only_grow(tmp_path):
    times = iter([50, 50, 10, 60, 5])
    files = GrantFiles(tmp_path, lambda: next(times))
    assert [files.mint("a.b/c", IDS, {})[1].minted_ns for _ in range(4)] == [50, 51, 52, 60]
    again = GrantFiles(tmp_path, lambda: next(times))  # the clock was set back over a restart
    assert again.mint("a.b/c", IDS, {})[1].minted_ns == 61
    assert [record.minted_ns for record in again.all()] == [50, 51, 52, 60, 61]


def test_minted_times_grow_past_grants_that_were_removed(tmp_path, problems):
    """The manager still knows them: a token that seems older than theirs would be void."""
    _, gone = GrantFiles(tmp_path, lambda: 500).mint("a.b/c", IDS, {})
    GrantFiles(tmp_path, lambda: 0).remove(gone.grant_id)
    set_back = GrantFiles(tmp_path, lambda: 7, problems.append)
    assert set_back.all() == []
    assert [set_back.mint("a.b/c", IDS, {})[1].minted_ns for _ in range(2)] == [501, 502]
    assert problems == []
    assert stat.S_IMODE((tmp_path / LAST_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "must hold nanoseconds in digits"),
        ("-5", "must hold nanoseconds in digits"),
        (b"\xff", "can't be read"),
        (None, "can't be read"),
    ],
    ids=["empty", "negative", "binary", "directory"],
)
def test_a_note_of_the_last_time_that_is_broken_is_reported_and_made_anew(tmp_path, problems, content, problem):
    _, record = GrantFiles(tmp_path, lambda: 500).mint("a.b/c", IDS, {})
    note = tmp_path / LAST_FILE
    if content is None:
        note.unlink()
        note.mkdir()
    else:
        note.write_bytes(content if isinstance(content, bytes) else content.encode())
    files = GrantFiles(tmp_path, lambda: 7, problems.append)
    if content is None:
        with pytest.raises(OSError):
            files.mint("a.b/c", IDS, {})
        note.rmdir()
    else:
        assert files.mint("a.b/c", IDS, {})[1].minted_ns == 501  # the grant that is here says it, too
    assert len(problems) == 1 and problems[0].startswith(f"{note}: {problem}")
    _, later = files.mint("a.b/c", IDS, {})
    assert later.minted_ns > record.minted_ns
    assert note.read_text() == f"{later.minted_ns}\n"


def test_what_a_killed_process_left_of_the_note_is_in_nobodys_way(files, tmp_path):
    (tmp_path / f"{LAST_FILE}.new").write_text("5")
    files.mint("a.b/c", IDS, {})
    assert grants_in(tmp_path) and not (tmp_path / f"{LAST_FILE}.new").exists()


def test_many_threads(files):
    threads = [threading.Thread(target=files.mint, args=("a.b/c", IDS, {0: {}})) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.minted_ns for record in files.all()) == list(range(1_000, 1_008))


def test_remove(files, tmp_path):
    token, record = files.mint("a.b/c", IDS, {0: {}})
    files.remove(record.grant_id)
    files.remove(record.grant_id)
    assert files.read(token) is None
    assert grants_in(tmp_path) == []
    for wrong in ("", "..", "../state", record.grant_id.upper() + "Z"):
        with pytest.raises(InputError, match="must be 32 hexadecimal digits"):
            files.remove(wrong)


def test_unknown_tokens(files, problems):
    assert files.read("") is None
    assert files.read("\ud800") is None
    assert files.read("../../etc") is None
    assert problems == []


REST = '"resource":"a.b/c","device_ids":["x"],"minted_ns":"1"'


def test_no_directory_has_no_grants(tmp_path):
    assert GrantFiles(tmp_path / "none", lambda: 0).all() == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is not JSON"),
        ("{}", "version is missing"),
        (f'{{"version":1,"token_digest":"%s",{REST}}}', "must be the SHA-256 that its directory is named by"),
        (b"\xff", "is not UTF-8"),
        (None, "has no grant.json; delete it"),
    ],
)
def test_broken_directories_are_left_out_and_reported(files, problems, content, problem):
    token, good = files.mint("a.b/c", IDS, {})
    broken_token, broken = files.mint("a.b/c", IDS, {})
    file = files.path(broken.grant_id) / "grant.json"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.replace("%s", "0" * 64).encode())
    assert files.all() == [good]
    assert files.read(broken_token) is None
    assert files.read(token) == good
    assert len(problems) == 2
    assert all(problem in text and broken.grant_id in text for text in problems)


@pytest.mark.parametrize(
    ("field", "value"), [("minted_ns", "-1"), ("minted_ns", 5), ("device_ids", [""]), ("resource", ""), ("more", 1)]
)
def test_mistyped_fields(files, problems, field, value):
    token, record = files.mint("a.b/c", IDS, {})
    file = files.path(record.grant_id) / "grant.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    assert files.read(token) is None
    assert field in problems[0]


def test_unreadable_grants_are_reported(files, problems):
    token, record = files.mint("a.b/c", IDS, {})
    file = files.path(record.grant_id) / "grant.json"
    file.unlink()
    file.mkdir()
    assert files.read(token) is None
    assert "can't be read: Is a directory" in problems[0]


@pytest.mark.parametrize("failing", range(1, 4))
def test_a_full_disk_leaves_nothing(files, tmp_path, monkeypatch, failing):
    calls = 0
    write_new = grant_files.write_new

    def full(path, data, **options):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(28, "No space left on device")
        write_new(path, data, **options)

    monkeypatch.setattr(grant_files, "write_new", full)  # the device file and the grant
    monkeypatch.setattr("emulator_runtime.files.write_new", full)  # the time of the last one
    with pytest.raises(OSError, match="No space left"):
        files.mint("a.b/c", IDS, {0: {}})
    assert calls == failing
    assert grants_in(tmp_path) == []
    assert not (tmp_path / f"{LAST_FILE}.new").exists()


def test_minting_waits_for_no_disk(files, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _fd: pytest.fail("the kubelet makes a pod wait for it"))
    token, record = files.mint("a.b/c", IDS, {0: {}})
    assert files.read(token) == record


def test_sweep_removes_what_a_power_cut_emptied(files, tmp_path):
    (_, lost), (token, kept) = files.mint("a.b/c", IDS, {}), files.mint("a.b/c", IDS, {})
    (files.path(lost.grant_id) / "grant.json").write_bytes(b"")
    files.sweep()
    assert grants_in(tmp_path) == [kept.grant_id]
    assert files.read(token) == kept


def test_sweep_removes_what_a_killed_process_left(files, tmp_path):
    token, record = files.mint("a.b/c", IDS, {})
    for name in (".new-abc", ".old-abc"):
        (tmp_path / name / "edev").mkdir(parents=True)
    files.sweep()
    assert files.read(token) == record
    assert grants_in(tmp_path) == [record.grant_id]
