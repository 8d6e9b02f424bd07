"""What `kubectl emugpu` leaves in files: an experiment's report as `emugpu compare` makes it, and the page with a chart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators.kube.api import EMUJOB
from scheduler_sims.reports.files import read_jobs_csv

Printed = Callable[..., tuple[int, str, str]]


def test_a_report_has_the_three_files(tmp_path: Path, printed: Printed) -> None:
    out = tmp_path / "deep" / "out"
    code, text, err = printed("experiment", "report", "b1", "--out", str(out))
    assert (code, err) == (0, "")
    assert f"report: {out}/report.html" in text
    rows = read_jobs_csv(out / "jobs.csv")
    assert [(row.policy, row.repeat, row.job_id) for row in rows[:4]] == [
        *(("allox", 1, f"Job {number}") for number in range(3)),
        ("drf-sjf", 1, "Job 0"),
    ]
    first = rows[1]
    assert (first.submit_s, first.start_s, first.finish_s, first.devices) == (1.0, 10.0, 62.5, ("w1/1",))
    summary = json.loads((out / "summary.json").read_text())
    observed = summary["policies"]["drf-sjf"]["observed"]
    assert (observed["cluster"], len(observed["repeats"]), observed["mean_jct_s"]) == ("kubernetes", 2, 74.0)
    assert observed["lag"] == {}
    assert summary["meta"]["workload"] == "EmuJobs of experiment b1-1, b1-2, b1-3"
    assert "Job 2" in (out / "report.html").read_text()


def test_a_job_that_failed_is_the_status_of_the_report(world: Any, printed: Printed) -> None:
    status = world.api.stored(EMUJOB, "emugpu-exp-b1-1/j-0")["status"]
    message = "Job has reached the specified backoff limit"
    status |= {
        "phase": "Failed",
        "conditions": [{"type": "Failed", "status": "True", "reason": "R", "message": message}],
    }
    code, text, _ = printed("experiment", "report", "b1")
    assert code == 1
    assert message in " ".join(text.split())
    assert json.loads(printed("experiment", "-o", "json")[1])[1]["failed"] == 1


def test_a_run_that_goes_on_is_reported_as_it_is(world: Any, printed: Printed) -> None:
    code, text, _ = printed("experiment", "report", "a7", "-o", "json")
    assert code == 1
    (policy,) = json.loads(text)["policies"].values()
    assert policy["observed"]["finished"] == 1
    (failure,) = policy["failures"]
    assert (failure["job_id"], "had not ended" in failure["reason"]) == ("bert-1", True)


def test_what_cannot_be_read_is_left_out_with_a_word(world: Any, printed: Printed) -> None:
    world.api.stored(EMUJOB, "emugpu-exp-b1-1/j-0")["spec"]["steps"] = 0
    code, text, _ = printed("experiment", "report", "b1", "-o", "json")
    assert code == 0
    notes = json.loads(text)["policies"]["allox"]["notes"]
    assert any(
        note.startswith("emugpu-exp-b1-1/j-0 is left out: EmuJob emugpu-exp-b1-1/j-0: spec.steps") for note in notes
    )


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_asked(
    tmp_path: Path, world: Any, printed: Printed
) -> None:
    (tmp_path / "file").write_text("")
    world.api.failures["list"] = [AssertionError("asked")]
    code, _, err = printed("experiment", "report", "b1", "--out", str(tmp_path / "file" / "out"))
    assert (code, err.startswith("kubectl emugpu: --out: can't make the directory")) == (2, True)


def test_the_chart_as_a_page(tmp_path: Path, printed: Printed) -> None:
    path = tmp_path / "gantt.html"
    code, text, _ = printed("gantt", "--html", str(path))
    assert (code, text) == (0, f"chart of 8 jobs: {path}\n")
    page = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page)
    assert found is not None
    (entry,) = json.loads(found[1])["gantt"]
    figure = entry["runs"][0]["figure"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["c1/cpu", *(f"w1/{n}" for n in range(4)), "w2/0", "w2/1"]
    assert sorted(set(figure["data"][0]["text"])) == ["alex-4", "bad-6", "bert-1", "cpu-5", "res-2"]
    assert "8 EmuJobs, time from 2026-01-01T10:00:00.250000Z on" in page
    code, _, err = printed("gantt", "--html", str(tmp_path / "none" / "gantt.html"))
    assert (code, "can't be written" in err) == (2, True)


@pytest.mark.parametrize("arguments", [["--by", "job"], ["--by", "device", "--idle"]])
def test_a_chart_of_nothing_that_ran(world: Any, printed: Printed, arguments: list[str]) -> None:
    for name in [name for name in world.api.objects["emujobs"] if name != "lab/new-8"]:
        world.api.remove(EMUJOB, name)
    code, text, _ = printed("gantt", *arguments)
    assert code == 0
    assert len(text.splitlines()) >= 2
