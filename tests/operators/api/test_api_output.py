"""What a comparison leaves, as the API's facts: from files as they are written, with and without spans.csv."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError, RefusedError
from operators.api.authentication.callers import Scope
from operators.api.model.changes import Changes
from operators.api.model.visibility import of_run
from operators.api.sources.compare_output import INEXACT, CompareOutput
from scheduler_sims.record import JobRecord, RunRecord, Span
from scheduler_sims.reports.files import write_jobs_csv
from scheduler_sims.reports.spans_file import write_spans_csv

ALL = Scope("")
LONG_FIELD, NESTED = "x" * 200_000 + "\n", "[" * 100_000
# big waits 1 s, holds two GPUs, is stopped at 4, goes on with one at 6; small fails on a CPU node.
BIG = JobRecord("big", "ann", 0, 0.0, 1.0, 9.0, 1, ("n1/0", "n1/1", "n2/0"))
SMALL = JobRecord("small", "bob", 1, 2.0, 2.0, 5.0, 0, ("c1/cpu",), status="failed", reason="out of memory")
SPANS = (
    Span("big", "n1", 0, 1.0, 4.0),
    Span("big", "n1", 1, 1.0, 4.0),
    Span("big", "n2", 0, 6.0, 9.0),
    Span("small", "c1", None, 2.0, 5.0),
)
PREDICTED = RunRecord("srtf", "simulated", 0, 4, ("n1", "n2", "c1"), (replace(BIG, finish_s=8.1), SMALL), SPANS)
OBSERVED = RunRecord("srtf", "local", 1, 4, ("n1", "n2", "c1"), (BIG, SMALL), SPANS)


def leave(directory: Path, *runs: RunRecord, spans: bool = True, **meta: Any) -> Path:
    """What `emugpu compare` writes."""
    directory.mkdir(exist_ok=True)
    write_jobs_csv(directory / "jobs.csv", runs)
    if spans:
        write_spans_csv(directory / "spans.csv", runs)
    summary = {"policies": {}, "meta": {"gpus": 4, "costs": {"start_s": "5 s"}} | meta}
    (directory / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return directory


def source(*directories: Path) -> CompareOutput:
    return CompareOutput(directories, Changes("e"))


def test_a_comparisons_jobs(tmp_path: Path) -> None:
    snapshot = source(leave(tmp_path / "mine", PREDICTED, OBSERVED)).snapshot()
    assert snapshot.cluster.clock == "emulated"
    assert [(run.id, run.cluster, run.repeat) for run in snapshot.experiments[0].runs] == [
        ("mine.1", "simulated", 0),
        ("mine.2", "local", 1),
    ]
    assert snapshot.experiments[0].meta == {"gpus": "4", "costs": "start_s 5 s"}
    by_name = {(job.name, job.cluster): job for job in snapshot.jobs}
    big, small = by_name["big", "local"], by_name["small", "local"]
    assert (big.phase, big.jct_s, big.queueing_delay_s, big.preemptions, big.service_s) == (
        "Succeeded",
        9.0,
        1.0,
        1,
        6.0,
    )
    assert (big.predicted_jct_s, big.predicted_by, big.error) == (8.1, "srtf", pytest.approx(-0.1))
    assert (big.gpus, big.nodes) == (1, ("n1", "n2"))
    assert by_name["big", "simulated"].error is None
    assert (small.phase, small.jct_s, small.reason, small.gpus) == ("Failed", None, "out of memory", 0)


def test_spans_tell_each_stay(tmp_path: Path) -> None:
    found = source(leave(tmp_path / "mine", PREDICTED, OBSERVED))
    big = next(job for job in found.snapshot().jobs if (job.name, job.cluster) == ("big", "local"))
    story = asyncio.run(found.timeline(big.uid))
    assert story is not None
    assert [(run.node, run.devices, run.from_s, run.to_s, run.ended, run.exact) for run in story.runs] == [
        ("n1", ("n1/0", "n1/1"), 1.0, 4.0, "released", True),
        ("n2", ("n2/0",), 6.0, 9.0, "finished", True),
    ]
    assert story.notes == ()


def test_without_spans_only_first_and_last_are_known(tmp_path: Path) -> None:
    found = source(leave(tmp_path / "mine", PREDICTED, OBSERVED, spans=False))
    by_name = {(job.name, job.cluster): job for job in found.snapshot().jobs}
    big, small = by_name["big", "local"], by_name["small", "local"]
    assert (big.service_s, small.service_s) == (None, 3.0)
    story = asyncio.run(found.timeline(big.uid))
    assert story is not None
    assert {(run.from_s, run.to_s, run.exact) for run in story.runs} == {(1.0, 9.0, False)}
    assert story.notes == (INEXACT,)


def test_runs_are_not_laid_over_each_other(tmp_path: Path) -> None:
    snapshot = source(leave(tmp_path / "mine", PREDICTED, OBSERVED)).snapshot()
    default = of_run(snapshot, ALL, "")
    assert default.run is not None and default.run.id == "mine.2"  # the first that was observed
    assert len(default.jobs) == 2
    assert of_run(snapshot, ALL, "mine.1").window(None, None).until_s == 8.1
    assert default.gpus == 4  # one of them was never used
    assert default.held_share(default.window(0.0, 10.0)) == pytest.approx((3 + 3 + 3) / 40)


def test_comparisons_beside_each_other_keep_their_devices(tmp_path: Path) -> None:
    other = replace(
        OBSERVED, nodes=("x",), jobs=(replace(BIG, devices=("x/0",)),), spans=(Span("big", "x", 0, 1.0, 9.0),)
    )
    (tmp_path / "deep").mkdir()
    found = source(leave(tmp_path / "mine", OBSERVED), leave(tmp_path / "deep" / "mine", other, gpus=1))
    snapshot = found.snapshot()
    assert [each.id for each in snapshot.experiments] == ["mine", "mine-2"]
    assert len({job.uid for job in snapshot.jobs}) == len(snapshot.jobs) == 3
    view = of_run(snapshot, ALL, "mine-2.1")
    assert [device.id for device in view.devices] == ["x/0"]
    assert view.held_share(view.window(None, None)) == pytest.approx(8 / 9)


def test_devices_are_in_the_order_of_nodes_and_indexes(tmp_path: Path) -> None:
    job = replace(BIG, devices=("n/10", "n/9", "n/cpu", "a/0"))
    snapshot = source(leave(tmp_path / "mine", replace(OBSERVED, jobs=(job,), spans=()))).snapshot()
    assert [device.id for device in snapshot.devices] == ["a/0", "n/9", "n/10", "n/cpu"]
    assert [(node.name, node.devices) for node in snapshot.nodes] == [("a", 1), ("n", 2)]


def test_files_that_are_written_again_are_read_again(tmp_path: Path) -> None:
    directory = leave(tmp_path / "mine", OBSERVED)
    found = source(directory)
    before = found.snapshot()
    assert not found.refresh()
    assert found.snapshot() is before
    leave(directory, PREDICTED, OBSERVED)
    assert found.refresh()
    assert (found.snapshot().version, len(found.snapshot().jobs)) == (2, 4)
    same = {job.uid for job in before.jobs} & {job.uid for job in found.snapshot().jobs}
    assert len(same) == 2  # a job keeps its uid


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("jobs.csv", "policy,", "jobs.csv:1: is not a jobs.csv"),
        ("jobs.csv", LONG_FIELD, "field larger than field limit"),
        ("spans.csv", LONG_FIELD, "field larger than field limit"),
        ("summary.json", NESTED, "summary.json: can't be read"),
    ],
    ids=lambda text: text[:30],
)
def test_a_broken_file_leaves_the_last_comparison_and_is_reported_once(
    tmp_path: Path, name: str, text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = leave(tmp_path / "mine", OBSERVED)
    found = source(directory)
    (directory / name).write_text(text, encoding="utf-8")
    assert not found.refresh()
    assert not found.refresh()
    assert len(found.snapshot().jobs) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    leave(directory, PREDICTED, OBSERVED)
    assert found.refresh()


def test_news_of_the_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.api.sources.compare_output.READ_S", 0.01)
    directory = leave(tmp_path / "mine", OBSERVED)
    found = source(directory)

    async def story() -> None:
        working = asyncio.create_task(found.run())
        leave(directory, PREDICTED, OBSERVED)
        await asyncio.wait_for(found.changes.wait(0), 5)
        working.cancel()

    asyncio.run(story())
    assert [change.kind for change in found.changes.after(0) or ()] == ["reset"]


def test_nothing_can_be_changed(tmp_path: Path) -> None:
    found = source(leave(tmp_path / "mine", OBSERVED))
    with pytest.raises(RefusedError, match="can't be changed"):
        asyncio.run(found.suspend(found.snapshot().jobs[0].uid, suspended=True))
    assert asyncio.run(found.timeline("nobody")) is None


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("jobs.csv", None, "jobs.csv: can't be read"),
        ("jobs.csv", "a,b\n", "is not a jobs.csv"),
        ("jobs.csv", LONG_FIELD, "jobs.csv: can't be read"),
        ("summary.json", None, "summary.json: can't be read"),
        ("summary.json", "{", "summary.json: can't be read"),
        ("summary.json", "[]", "is not a summary.json"),
        ("summary.json", NESTED, "summary.json: can't be read"),
        ("spans.csv", "a,b\n", "is not a spans.csv"),
    ],
    ids=lambda text: text and text[:30],
)
def test_what_is_no_comparison_is_said(tmp_path: Path, name: str, text: str | None, problem: str) -> None:
    directory = leave(tmp_path / "mine", OBSERVED)
    (directory / name).unlink()
    if text is not None:
        (directory / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        source(directory)


def test_a_replica_that_left_has_not_failed(tmp_path: Path) -> None:
    replica = replace(SMALL, status="removed", reason="")
    jobs = source(leave(tmp_path / "mine", replace(OBSERVED, jobs=(BIG, replica)))).snapshot().jobs
    assert {job.name: (job.phase, job.jct_s) for job in jobs} == {
        "big": ("Succeeded", 9.0),
        "small": ("Succeeded", None),
    }
