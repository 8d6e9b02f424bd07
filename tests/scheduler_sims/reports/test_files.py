from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from scheduler_sims.record import JobRecord, RunRecord
from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.files import JOB_COLUMNS, read_jobs_csv, summary_dict, write_jobs_csv, write_summary

FIGURES = {
    *("mean_jct_s", "median_jct_s", "p95_jct_s", "makespan_s", "utilisation", "mean_queueing_delay_s"),
    *("cpu_utilisation", "preemptions", "finished", "failed"),
}
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)


def test_jobs_csv_line_by_line(job, run, tmp_path):
    failed = job("b", 1, None, 3, status="failed", reason='needs "8, 16" GiB')
    write_jobs_csv(
        tmp_path / "jobs.csv", [run([job("a", 0.5, 1, 2.25, devices=("n/0", "n/1"), preemptions=3), failed])]
    )
    assert (tmp_path / "jobs.csv").read_text() == (
        "policy,cluster,repeat,job_id,user,status,submit_s,start_s,finish_s,jct_s,queueing_delay_s,preemptions,devices,reason\n"
        "fifo,simulated,0,a,alice,finished,0.500000,1.000000,2.250000,1.750000,0.500000,3,n/0 n/1,\n"
        'fifo,simulated,0,b,alice,failed,1.000000,,3.000000,2.000000,2.000000,0,,"needs ""8, 16"" GiB"\n'
    )


def test_same_runs_same_bytes_even_with_noise_below_a_microsecond(job, run, tmp_path):
    write_jobs_csv(tmp_path / "one.csv", [run([job("a", 0.0, 0.1 + 0.2, 1.0)])])
    write_jobs_csv(tmp_path / "two.csv", [run([job("a", -0.0, 0.3, 1.0)])])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


@given(rows=st.lists(st.tuples(names, names, names, st.integers(0, 10**9)), max_size=5))
def test_jobs_csv_round_trip(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "jobs.csv"
    jobs = tuple(
        JobRecord(
            name, user, i, 1.5, None if micro % 2 else 2.0, 2.0 + micro / 1e6, micro % 7, ("n/0",), "failed", reason
        )
        for i, (name, user, reason, micro) in enumerate(rows)
    )
    write_jobs_csv(path, [RunRecord("las:t=1", "local", 2, 1, ("n",), jobs, ())])
    found = read_jobs_csv(path)
    assert [(r.job_id, r.user, r.reason, r.preemptions, r.devices) for r in found] == [
        (j.job_id, j.user, j.reason, j.preemptions, j.devices) for j in jobs
    ]
    for row, job in zip(found, jobs, strict=True):
        assert (row.policy, row.cluster, row.repeat, row.start_s) == ("las:t=1", "local", 2, job.start_s)
        assert row.finish_s == pytest.approx(job.finish_s, abs=1e-6)
        assert row.jct_s == pytest.approx(job.jct_s, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a,b\n1,2\n", ":1: is not a jobs.csv"),
        ("", ":1: is not a jobs.csv"),
        (",".join(JOB_COLUMNS) + "\nfifo,simulated,zero,a,u,finished,0,0,1,1,0,0,,\n", ":2: .*zero"),
        (",".join(JOB_COLUMNS) + "\nfifo,simulated,0\n", ":2: is not a row"),
        (",".join(JOB_COLUMNS) + "\nfifo,simulated,0,a,u,finished,0,0,inf,inf,0,0,,\n", "inf is not a time"),
        pytest.param(
            ",".join(JOB_COLUMNS) + "\n" + "x" * 200_000 + "\n", "can't be read: field larger than", id="a long field"
        ),
    ],
)
def test_a_foreign_csv_is_refused_with_file_and_line(tmp_path, text, place):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=place):
        read_jobs_csv(path)


def test_a_missing_file_and_an_unwritable_place_are_one_clear_line(tmp_path, runs):
    with pytest.raises(InputError, match=r"nowhere\.csv: can't be read: No such file"):
        read_jobs_csv(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="can't be written: No such file or directory; choose another"):
        write_jobs_csv(tmp_path / "missing" / "jobs.csv", runs)


def test_a_write_that_fails_leaves_the_old_file_and_no_scrap(tmp_path, runs, monkeypatch):
    path = tmp_path / "summary.json"
    path.write_text("old")

    def broken(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(InputError, match="No space left on device"):
        write_summary(path, compare(runs))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("summary.json", "old")]


def test_summary_has_the_documented_keys(runs, tmp_path):
    write_summary(tmp_path / "summary.json", compare(runs), {"seed": 7, "cost": float("nan"), "path": Path("x/y")})
    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert summary["meta"] == {"seed": 7, "cost": None, "path": "x/y"}
    assert list(summary["policies"]) == ["fifo", "las"]
    fifo = summary["policies"]["fifo"]
    assert set(fifo["predicted"]) == FIGURES
    assert set(fifo["observed"]) == FIGURES | {"cluster", "repeats", "spread", "lag"}
    assert [set(repeat) for repeat in fifo["observed"]["repeats"]] == [FIGURES, FIGURES]
    assert set(fifo["observed"]["spread"]["mean_jct_s"]) == {"min", "max", "relative"}
    assert fifo["observed"]["lag"]["step"]["count"] == 200
    assert set(fifo["error"]) == {
        *("mean_jct", "median_jct", "p95_jct", "makespan", "utilisation", "mean_queueing_delay"),
        *("cpu_utilisation", "per_job", "jct_quantiles", "jct_quantiles_max_abs"),
    }
    assert set(fifo["error"]["per_job"]) == {"jobs", "mean_signed", "median_abs", "p95_abs", "spearman", "kendall"}
    predicted, observed = fifo["predicted"]["mean_jct_s"], fifo["observed"]["mean_jct_s"]
    assert fifo["error"]["mean_jct"] == pytest.approx((predicted - observed) / observed)
    assert fifo["error"]["mean_jct"] == pytest.approx(80 / 81.7 - 1)  # 80/3 s against (80.85 + 82.55)/2/3 s


def test_summary_of_a_prediction_alone(job, run):
    summary = summary_dict(compare([run([job("a", 0, None, 2, status="failed", reason="no")])]))
    fifo = summary["policies"]["fifo"]
    assert (fifo["observed"], fifo["error"]) == (None, None)
    assert fifo["predicted"]["mean_jct_s"] is None
    assert fifo["failures"] == [{"policy": "fifo", "cluster": "simulated", "repeat": 0, "job_id": "a", "reason": "no"}]
    assert summary["meta"] == {}
