"""From entries to a workload: order, nodes, what is changed and counted; and that the simulator runs what is written."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import EmuGpuError
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.traces.importing import Choices, Tally, import_trace, ordered, row_of
from scheduler_sims.traces.job import NEVER_RAN, LeftOut, Source, TraceFormat, TraceJob

JOB = TraceJob("j", 1000.0, 90.0, 4)


def trace(*entries: TraceJob | LeftOut) -> TraceFormat:
    return TraceFormat("a trace", "files", "here", lambda source: iter(entries))


def test_the_workload_is_in_order_and_begins_at_zero(tmp_path: Path) -> None:
    out = tmp_path / "w.csv"
    late = TraceJob("late", 1060.5, 7.25, 2, user="u", model="vgg, 19", weight=2)
    tally = import_trace(trace(late, NEVER_RAN, JOB, TraceJob("c", 1, 1, 0)), Source([out]), Choices(), out)
    assert (tally.written, dict(tally.left_out)) == (2, {"never started": 1, "have no GPU": 1})
    first, second = load_workload(out).jobs
    assert (first.job_id, first.submit_s, first.steps, first.configurations[0].gpus) == ("j", 0, 2, 4)
    assert (second.job_id, second.submit_s, second.user, second.weight) == ("late", 60.5, "u", 2)
    assert second.work["gpu"].duration_s == 7.25  # type: ignore[union-attr]


def test_order_is_that_of_one_sort_however_small_the_pieces(tmp_path: Path) -> None:
    chance = random.Random(4)
    jobs = [TraceJob(str(n), chance.randrange(20), 1, 1) for n in range(100)]
    for chunk in (1, 7, 50, 100, 1000):
        with ExitStack() as files:
            (folder := tmp_path / str(chunk)).mkdir()
            assert list(ordered(iter(jobs), folder, files, chunk)) == sorted(jobs, key=lambda job: job.submit_s)


@pytest.mark.parametrize(
    ("gpus", "asked", "nodes", "counted"),
    [
        (8, None, "", 0),
        (16, None, 2, 0),
        (12, None, 2, 0),  # 6 each
        (9, None, 3, 0),  # 3 each: 9 can't be halved
        (11, None, 11, 0),
        (16, 4, 4, 0),
        (16, 1, 2, 1),  # 16 GPUs on one node of the trace, whose nodes were larger
        (9, 2, 3, 1),
        (4, 3, "", 1),
    ],
)
def test_jobs_are_split_over_nodes(gpus: int, asked: int | None, nodes: int | str, counted: int) -> None:
    tally = Tally()
    row = row_of(TraceJob("j", 0, 1, gpus, nodes=asked), 0, Choices(), tally)
    assert (row["nodes"], tally.changed.total()) == (nodes, counted)


def test_parts_of_gpus_are_rounded_up_and_sums_of_them_exact() -> None:
    tally = Tally()
    rows = [row_of(TraceJob("j", 0, 1, gpus), 0, Choices(), tally) for gpus in (0.22, 3 * 0.1 + 0.7, 1.5)]
    assert [row["num_gpus"] for row in rows] == [1, 1, 2]
    assert tally.changed == {"ask for a part of a GPU: rounded up": 2}


def test_choices(tmp_path: Path) -> None:
    out = tmp_path / "w.csv"
    jobs = (
        TraceJob("g", 0, 9, 1, "u", "vc", cpus=6, memory_gib=30, gpu_types=("T4", "G1"), finished=False),
        TraceJob("c", 0, 9, 0, "u", "vc", cpus=2.5, memory_gib=3),
        TraceJob("any", 0, 9, 2, gpu_types=("G1",)),
    )
    known = {"T4": "Tesla-T4"}
    choices = Choices(groups=True, host=True, cpu_jobs=True, gpu_name=known.get, step_s=1)
    tally = import_trace(trace(*jobs), Source([out]), choices, out)
    one, cpu, other = load_workload(out).jobs
    assert (one.user, one.configurations[0].cpu_milli, one.configurations[0].gpu_types) == ("vc", 6000, ("Tesla-T4",))
    assert (cpu.configurations[0].gpus, cpu.configurations[0].cpu_milli, cpu.configurations[0].memory_bytes) == (
        0,
        2500,
        3 * 2**30,
    )
    assert (other.configurations[0].gpu_types, one.steps) == (None, 9)
    assert dict(tally.changed) == {"name a GPU type that isn't known here: run on any": 1}
    tally = import_trace(trace(*jobs), Source([out]), Choices(finished_only=True), out)
    assert (tally.written, dict(tally.left_out)) == (1, {"failed or were killed": 1, "have no GPU": 1})


def test_no_job_is_an_error_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "w.csv"
    out.write_text("before")
    with pytest.raises(EmuGpuError, match="no job can be imported: 2 never started"):
        import_trace(trace(NEVER_RAN, NEVER_RAN), Source([Path("t.csv")]), Choices(), out)
    with pytest.raises(EmuGpuError, match=r"w\.csv: can't be written: No such file"):
        import_trace(trace(JOB), Source([out]), Choices(), tmp_path / "none" / "w.csv")
    assert out.read_text() == "before"
