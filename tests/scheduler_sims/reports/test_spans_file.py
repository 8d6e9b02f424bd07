from __future__ import annotations

from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from scheduler_sims.record import RunRecord, Span
from scheduler_sims.reports.spans_file import SPAN_COLUMNS, SpanRow, read_spans_csv, write_spans_csv

SPANS = (Span("a", "n1", 0, 0.0, 1.25), Span("b, the other", "n/2", None, 0.1, 2.0))
RUN = RunRecord("las:threshold_s=3", "local", 2, 1, ("n1", "n/2"), (), SPANS)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_spans_csv(tmp_path / "spans.csv", [RUN])
    assert read_spans_csv(tmp_path / "spans.csv") == [
        SpanRow("las:threshold_s=3", "local", 2, "a", "n1/0", 0.0, 1.25),
        SpanRow("las:threshold_s=3", "local", 2, "b, the other", "n/2/cpu", 0.1, 2.0),
    ]


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("p,c,x,j,n/0,0,1", "spans.csv:2"),
        ("p,c,1,j,n/0,0", "spans.csv:2"),
        ("p,c,1,j,n/0,a,1", "spans.csv:2"),
        ("p,c,1,j,n/0,0,nan", "spans.csv:2"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, place: str) -> None:
    path = tmp_path / "spans.csv"
    path.write_text(",".join(SPAN_COLUMNS) + f"\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"{place}: is not a row"):
        read_spans_csv(path)


def test_what_can_t_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        read_spans_csv(tmp_path / "spans.csv")
    (tmp_path / "spans.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="can't be read"):
        read_spans_csv(tmp_path / "spans.csv")


def test_another_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "spans.csv").write_text("job_id\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"spans\.csv:1: is not a spans\.csv"):
        read_spans_csv(tmp_path / "spans.csv")
