"""What a comparison found, as bytes and back: the same reports come of it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from operators.experiments.calibration.calibration import Calibration
from operators.experiments.saved import SavedComparison, packed, unpacked
from scheduler_sims.record import HostSpan, Interruption, JobRecord, LagAccount, RunRecord, Span


def record() -> RunRecord:
    jobs = (
        JobRecord("a", "u", 0, 0.0, 1.25, 10.0, 2, ("w1/0", "w1/cpu")),
        JobRecord("b", "u", 1, 3.0, None, 9.0, 0, (), "failed", "why"),
    )
    spans = (Span("a", "w1", 0, 1.25, 10.0), Span("a", "w1", None, 2.0, 3.0))
    host_spans = (HostSpan("a", "w1", 500, 2**30, 1.25, 10.0),)
    lost = (Interruption("a", "w1", 5.0, 3, 1.25),)
    lag = {"submit": LagAccount(2, 0.1, 0.2, 0.3)}
    return RunRecord(
        "fifo", "kubernetes", 1, 4, ("w1", "w2"), jobs, spans, 12.5, 3, lag, ("note",), 8000, host_spans, 0.0, lost
    )


def test_what_is_packed_comes_back() -> None:
    kept = SavedComparison(
        "digest", 2, None, {"jobs": 2, "nodes by name": {"n": "w1"}}, (record(), replace(record(), repeat=2))
    )
    assert unpacked(packed(kept), "here") == kept
    assert packed(kept) == packed(unpacked(packed(kept), "here"))
    assert unpacked(packed(kept.without_spans()), "here").runs[0] == replace(record(), spans=(), host_spans=())


def test_what_was_measured_comes_back_with_what_is_known_badly() -> None:
    measured = Calibration({"start_s": 0.5, "finish_s": 1.5}, 0.3, {"alone": 1}, notes=("few came",))
    assert unpacked(packed(SavedComparison(calibration=measured)), "here").calibration == measured


def test_times_are_kept_to_the_microsecond() -> None:
    found = unpacked(packed(SavedComparison(runs=(replace(record(), wall_s=1 / 3),))), "here")
    assert found.runs[0].wall_s == 0.333333


def zipped(document: Any) -> bytes:
    return gzip.compress(json.dumps(document).encode(), mtime=0)  # names of cases must be the same in each process


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no gzip", "holds no saved comparison"),
        (packed(SavedComparison())[:-9], "holds no saved comparison"),
        (zipped([]), "holds no saved comparison"),
        (zipped({"format": 1}), "was written by another version of emugpu"),
        (zipped({"format": 3, "inputs": ""}), "holds no saved comparison"),
    ],
)
def test_what_is_something_else_is_reported_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"^there: {message}"):
        unpacked(data, "there")
