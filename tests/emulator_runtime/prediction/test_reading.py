"""Files of records that are damaged, incomplete, or of another version; which process is which rank."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.reading import (
    Manifest,
    read_manifest,
    read_process,
    read_processes,
    read_trace,
    write_manifest,
)
from emulator_runtime.prediction.records import Launch


def header(rank: int = -1, process: int = 7, version: int = 1) -> bytes:
    return struct.pack("<8sIIiI", b"EMUTRACE", version, process, rank, 1)


def head(tag: int, stream: int = 1, at_ns: int = 5) -> bytes:
    return struct.pack("<BBHIq", tag, 0, 0, stream, at_ns)


NAME = head(1) + struct.pack("<II", 3, 0) + b"add"
WORK = head(2) + struct.pack("<IIII4d6I", 0, 0, 1, 0, 1.0, 2.0, 0, 0, 1, 1, 1, 32, 1, 1)
LAUNCH = head(3, at_ns=9) + struct.pack("<II", 0, 1)
END = head(14, at_ns=11)
WHOLE = NAME + WORK + LAUNCH + END


def written(folder: Path, content: bytes, name: str = "process-7") -> Path:
    path = folder / f"{name}.records"
    path.write_bytes(content)
    return path


def launches(path: Path) -> int:
    return sum(isinstance(record, Launch) for record in read_process(path).records)


def test_a_whole_file(tmp_path: Path) -> None:
    found = read_process(written(tmp_path, header(rank=3) + WHOLE))
    assert (found.rank, found.process, found.complete, found.host_ns) == (3, 7, True, 11)
    (launch,) = found.records
    assert isinstance(launch, Launch)
    assert (launch.work.name, launch.work.grid, launch.work.block) == ("add", (1, 1, 1), (32, 1, 1))


@pytest.mark.parametrize("lost", range(1, len(END + LAUNCH)))
def test_any_beginning_of_a_file_is_read(lost: int, tmp_path: Path) -> None:
    """A copy that was cut off, or a process that was killed while it wrote."""
    path = written(tmp_path, (header() + WHOLE)[:-lost])
    assert launches(path) == (1 if lost <= len(END) else 0)
    assert not read_process(path).complete


def test_the_unused_end_of_a_mapped_file_is_no_record(tmp_path: Path) -> None:
    path = written(tmp_path, header() + NAME + WORK + LAUNCH + bytes(4096))
    assert launches(path) == 1
    assert not read_process(path).complete


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "doesn't begin with EMUTRACE"),
        (b"[{}]" * 20, "doesn't begin with EMUTRACE"),
        (header()[:10], "doesn't begin with EMUTRACE"),
        (header(version=2), "has version 2, this emugpu reads 1: record the program again"),
        (header() + NAME + WORK + head(99) + bytes(8), f"byte {24 + len(NAME + WORK)}: there is no record 99"),
        (header() + NAME + LAUNCH, "names a kernel that isn't there"),
        (header() + head(12) + struct.pack("<IIQQII", 1, 77, 0, 0, 0, 0), "there is no collective 77"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(content: bytes, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError) as caught:
        read_process(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_the_launchers_ranks_count_and_of_equal_ones_the_busiest(tmp_path: Path) -> None:
    written(tmp_path, header(rank=1, process=5) + WHOLE, "process-5")
    written(tmp_path, header(rank=0, process=9) + WHOLE, "process-9")
    written(tmp_path, header(rank=0, process=4) + END, "process-4")  # what rank 0 started
    written(tmp_path, header(process=2) + WHOLE, "process-2")  # the launcher
    ranks = read_trace(tmp_path).ranks
    assert [(rank.rank, len(rank.records)) for rank in ranks] == [(0, 1), (1, 1)]
    assert [one.process for one in read_processes(tmp_path)] == [4, 9, 5, 2]


def test_without_a_launcher_the_communicator_says_the_rank_or_the_process_number(tmp_path: Path) -> None:
    def joined(rank: int) -> bytes:
        members = struct.pack("<Q16sQ16s", 1, b"a" * 16, 1, b"b" * 16)
        return head(11) + struct.pack("<IiII16s", 1, rank, 2, 0, b"k" * 16) + members

    written(tmp_path, header(process=5) + joined(1) + WHOLE, "process-5")
    written(tmp_path, header(process=6) + joined(0) + WHOLE, "process-6")
    first, second = read_trace(tmp_path).ranks
    assert (first.communicators[1].rank, second.communicators[1].rank) == (0, 1)
    assert first.communicators[1].members == (("0000000000000001", -1), ("0000000000000001", -1))
    for path in tmp_path.iterdir():
        path.write_bytes(header(process=int(path.stem[-1])) + WHOLE)
    assert [rank.rank for rank in read_trace(tmp_path).ranks] == [0, 1]


def test_a_job_without_some_of_its_ranks_is_refused(tmp_path: Path) -> None:
    written(tmp_path, header(rank=2) + WHOLE)
    with pytest.raises(InputError, match="has rank 2 but not 0, 1: record all processes of the job"):
        read_trace(tmp_path)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no records of a program"):
        read_trace(tmp_path)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = Manifest(("python", "train.py"), "NVIDIA_A100-SXM4-40GB", 2, exit_status=0)
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no trace.json"),
        ("{", "isn't the file of a trace"),
        ("[]", "isn't the file of a trace"),
        (json.dumps({"command": ["x"], "gpu_type": "A100"}), "isn't the file of a trace"),
        (json.dumps({"command": ["x"], "gpu_type": "A100", "gpus": 1, "version": 9}), "has version 9"),
    ],
)
def test_a_wrong_manifest_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "trace.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path)
