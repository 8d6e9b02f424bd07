"""The shared clock: all see the same time, nobody sees half a change, and a bad file is named."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.timing import shared_clock
from emulator_runtime.timing.anchors import Anchors
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import SharedClockFile


class Wall:
    """A host's clock that stands still."""

    def __init__(self, time_ns: int = 1_000) -> None:
        self.time_ns = time_ns

    def __call__(self) -> int:
        return self.time_ns


def test_reader_sees_what_the_writer_changes(tmp_path):
    wall = Wall()
    writer = SharedClockFile.create(tmp_path / "clock", 2.0, now=wall)
    reader = SharedClockFile.open(tmp_path / "clock", now=wall)
    wall.time_ns += 500
    assert writer.now_ns() == reader.now_ns() == 1_000
    writer.set_rate(10.0)
    wall.time_ns += 500
    assert reader.now_ns() == 6_000
    writer.pause()
    wall.time_ns += 500
    assert reader.now_ns() == 6_000
    writer.jump_to_ns(9_000)
    assert reader.now_ns() == 9_000
    writer.set_rate(1.0)
    wall.time_ns += 1
    assert reader.now_ns() == 9_001
    assert reader.read() == Anchors(2_500, 9_000, 1.0)


def test_jump_to_the_past_changes_nothing(tmp_path):
    wall = Wall()
    clock = SharedClockFile.create(tmp_path / "clock", emulated_ns=50, now=wall)
    wall.time_ns += 10
    clock.jump_to_ns(20)
    assert clock.now_ns() == 60


def test_a_clock_that_cannot_take_its_place_leaves_nothing(tmp_path):
    (tmp_path / "clock").mkdir()
    with pytest.raises(ClusterError, match=r"can't write the shared clock \(Is a directory\)"):
        SharedClockFile.create(tmp_path / "clock")
    assert [path.name for path in tmp_path.iterdir()] == ["clock"]


def test_mode_travels_with_the_file(tmp_path):
    SharedClockFile.create(tmp_path / "clock", mode="warp")
    assert SharedClockFile.open(tmp_path / "clock").mode == "warp"
    assert SharedClockFile.create(tmp_path / "clock").mode == "host"


def test_layout_is_the_documented_one(tmp_path):
    clock = SharedClockFile.create(tmp_path / "clock", 2.0, "warp", emulated_ns=7, now=Wall(1_000))
    clock.set_rate(0.5)
    fields = struct.unpack("=8sqqqqqdq", (tmp_path / "clock").read_bytes())
    (rate_bits,) = struct.unpack("=q", struct.pack("=d", 0.5))
    assert fields == (b"EMUCLOCK", 1, 1, 2, 1_000, 7, 0.5, 1_000 ^ 7 ^ rate_bits)


def test_create_leaves_one_file_and_who_has_the_old_one_keeps_it(tmp_path):
    old = SharedClockFile.create(tmp_path / "clock", 0.0, emulated_ns=5)
    SharedClockFile.create(tmp_path / "clock", 0.0, emulated_ns=9)
    assert [path.name for path in tmp_path.iterdir()] == ["clock"]
    assert old.now_ns() == 5
    assert SharedClockFile.open(tmp_path / "clock").now_ns() == 9


def test_second_writer_goes_on_after_the_first(tmp_path):
    SharedClockFile.create(tmp_path / "clock", 0.0, emulated_ns=5).close()
    SharedClockFile.open(tmp_path / "clock", writable=True).jump_to_ns(8)
    assert SharedClockFile.open(tmp_path / "clock").now_ns() == 8


def test_reader_may_not_write(tmp_path):
    SharedClockFile.create(tmp_path / "clock")
    with pytest.raises(
        ClusterError, match="clock: this process only reads the shared clock; open it with writable=True"
    ):
        SharedClockFile.open(tmp_path / "clock").pause()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:40], "not a shared clock: 40 bytes instead of 64"),
        (lambda data: b"", "not a shared clock: 0 bytes"),
        (lambda data: b"NOTCLOCK" + data[8:], "starts with b'NOTCLOCK'"),
        (lambda data: data[:8] + struct.pack("=q", 2) + data[16:], "version 2, this program reads version 1"),
        (lambda data: data[:16] + struct.pack("=q", 5) + data[24:], "unknown mode 5"),
    ],
)
def test_bad_file_is_named(tmp_path, change, problem):
    path = tmp_path / "clock"
    SharedClockFile.create(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match=problem) as caught:
        SharedClockFile.open(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("offset", "word"),
    [(24, 7), (56, 12345)],
    ids=["odd sequence: the writer died", "check word differs: half a change"],
)
def test_half_a_change_is_never_believed(tmp_path, monkeypatch, offset, word):
    path = tmp_path / "clock"
    SharedClockFile.create(path)
    pauses = []
    monkeypatch.setattr(shared_clock, "sleep_ns", pauses.append)
    data = bytearray(path.read_bytes())
    struct.pack_into("=q", data, offset, word)
    path.write_bytes(data)
    with pytest.raises(ClusterError, match="clock: the shared clock's writer died in the middle of a change; create"):
        SharedClockFile.open(path)
    assert 0.5e9 < sum(pauses) < 2e9


def test_missing_file_says_what_creates_it(tmp_path):
    with pytest.raises(ClusterError, match=r"clock: can't open the shared clock \(No such file or directory\); start"):
        SharedClockFile.open(tmp_path / "clock")


def test_unwritable_place_is_named(tmp_path):
    with pytest.raises(ClusterError, match=r"nowhere/clock: can't write the shared clock \(No such file"):
        SharedClockFile.create(tmp_path / "nowhere" / "clock")


def test_clock_from_before_the_last_boot_is_refused(tmp_path):
    SharedClockFile.create(tmp_path / "clock", now=Wall(10**15))
    with pytest.raises(ClusterError, match="clock: this shared clock is from before the last boot; remove it"):
        SharedClockFile.open(tmp_path / "clock", now=Wall(10**9))


def test_unknown_mode_and_rate_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="mode: must be one of host, warp, got 'slow'"):
        SharedClockFile.create(tmp_path / "clock", mode="slow")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rate: "):
        SharedClockFile.create(tmp_path / "clock", -1.0)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.tuples(st.integers(0, 10**10), st.sampled_from([0.0, 0.1, 1.0, 7.3, 1000.0])), max_size=30))
def test_time_is_continuous_under_set_rate(tmp_path_factory, changes):
    wall = Wall()
    clock = SharedClockFile.create(tmp_path_factory.mktemp("clock") / "clock", now=wall)
    for passes_ns, rate in changes:
        before, old_rate = clock.now_ns(), clock.read().rate
        wall.time_ns += passes_ns
        arrived = clock.now_ns()
        assert abs(arrived - before - passes_ns * old_rate) <= 1 + 1e-6
        clock.set_rate(rate)
        assert clock.now_ns() == arrived


# The writer's wall time counts its changes, and the rate after change k is 1 + k % 7: so each wall anchor has exactly one
# right rate and one right emulated anchor.
TEARING_WRITER = """
import sys
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import SharedClockFile
change = 0
clock = SharedClockFile.create(sys.argv[1], 1.0, now=lambda: change)
print("ready", flush=True)
end = monotonic_ns() + 1_000_000_000
while monotonic_ns() < end:
    change += 1
    clock.set_rate(1.0 + change % 7)
"""

HASTY_WRITER = """
import sys
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import SharedClockFile
clock = SharedClockFile.create(sys.argv[1], 1.0)
print("ready", flush=True)
end = monotonic_ns() + 1_000_000_000
while monotonic_ns() < end:
    for rate in (1000.0, 0.0, 0.5, 100_000.0):
        clock.set_rate(rate)
    clock.jump_to_ns(clock.now_ns() + 1_000)
"""


def start_writer(code: str, path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", code, os.fspath(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.processes
def test_no_reader_ever_sees_half_a_change(tmp_path):
    with start_writer(TEARING_WRITER, tmp_path / "clock") as writer:
        reader = SharedClockFile.open(tmp_path / "clock", now=lambda: 10**15)
        seen = set()
        while writer.poll() is None:
            anchors = reader.read()
            rounds, rest = divmod(anchors.wall_ns, 7)
            assert anchors.rate == 1 + rest
            assert anchors.emulated_ns == rounds * 28 + rest * (rest + 1) // 2
            seen.add(anchors.wall_ns)
    assert writer.returncode == 0
    assert len(seen) > 50


@pytest.mark.processes
def test_time_never_goes_back_for_anybody(tmp_path):
    with start_writer(HASTY_WRITER, tmp_path / "clock") as writer:
        readers = [SharedClockFile.open(tmp_path / "clock") for _ in range(2)]
        latest, reads = 0, 0
        while writer.poll() is None:
            for reader in readers:
                now = reader.now_ns()
                assert now >= latest
                latest, reads = now, reads + 1
    assert writer.returncode == 0
    assert reads > 50


def test_reading_is_cheap(tmp_path):
    clock = SharedClockFile.create(tmp_path / "clock")
    start = monotonic_ns()
    for _ in range(1_000):
        clock.now_ns()
    assert monotonic_ns() - start < 1_000_000_000  # 1 ms each; measured: below 1 us
