from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from scheduler_sims.record import LagAccount
from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.distortion import failures, warnings
from scheduler_sims.reports.formats import correlation, count, list_some, percent, seconds, share
from scheduler_sims.reports.table import print_comparison
from scheduler_sims.reports.verdict import verdict


def shown(runs, width=100):
    console = Console(file=io.StringIO(), width=width)
    print_comparison(compare(runs), console)
    return console.file.getvalue()


def test_every_policy_has_predicted_observed_and_error_rows(runs):
    text = shown(runs)
    assert [line.split()[:3] for line in text.splitlines() if "predicted " in line and "fifo" in line] == [
        ["fifo", "predicted", "26.7"]
    ]
    assert [line.split()[1] for line in text.splitlines() if line.split()[:1] == ["observed"]] == ["27.2", "30.1"]
    fifo_error = next(line for line in text.splitlines() if line.strip().startswith("error"))
    assert fifo_error.split()[1] == "−2.08%"
    assert "Spearman" in text and "1.000" in text
    assert "warning" not in text and "failed" not in text


def test_a_hundred_columns_cut_nothing_even_with_a_long_name(runs):
    long_name = "my_policies/with_a_long_name.py:Custom"
    text = shown([replace(run, policy=long_name) for run in runs if run.policy == "fifo"])
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 100
    left = "".join(line[:24].strip() for line in text.splitlines() if line.strip() and "policy" not in line)
    assert long_name in left.replace(" ", "")


def test_predictions_alone_have_no_error_table(runs):
    text = shown([run for run in runs if run.cluster == "simulated"])
    assert "observed" not in text and "error" not in text and "Spearman" not in text
    assert "26.7" in text


def test_lag_above_a_hundredth_of_the_mean_jct_is_the_first_line(runs):
    late = [replace(r, lag={"start": LagAccount(9, 0.01, 1.0, 2.0)}) if r.cluster == "local" else r for r in runs]
    assert shown(late).startswith(
        "warning: fifo: the local cluster was late: start lag p99 1.00 s is 3.67% of the mean JCT"
    )
    just = [replace(r, lag={"start": LagAccount(9, 0.01, 0.27, 2.0)}) if r.cluster == "local" else r for r in runs]
    assert warnings(compare(just)) == ()


def test_small_lags_before_every_start_add_up_to_a_busy_host(runs):
    """3 jobs that run 23.9 s on average, 2 repeats: 0.24 s for each start and decision of a job is 1% of that."""

    def lines(p50_s, *kinds):
        lag = dict.fromkeys(kinds, LagAccount(3, p50_s, p50_s, p50_s))
        return warnings(
            compare([replace(r, lag=lag) if r.cluster == "local" else r for r in runs if r.policy == "fifo"])
        )

    (line,) = lines(0.13, "start", "decide")
    assert line.startswith(
        "fifo: this host was too busy to be exact: decisions and process starts delayed each job by 0.260 s, 1.09%"
    )
    assert "use --warp" in line
    assert lines(0.11, "start", "decide") == ()
    assert lines(0.2, "start", "step", "submit") == ()


def test_notes_and_failed_jobs_are_named(runs, job):
    broken = job("x[bold]", 0, 1, 2, status="failed", reason="out of memory [/] on node-0")
    changed = [
        replace(r, jobs=(*r.jobs, broken), notes=("host was busy",)) if r.cluster == "local" else r for r in runs[:3]
    ]
    text = shown(changed)
    assert "warning: fifo: 1 job failed (x[bold]); the JCT figures leave failed jobs out" in text
    assert text.count("warning: fifo: host was busy") == 1
    last = "failed: fifo, x[bold]: out of memory [/] on node-0 (local #1, local #2)"
    assert text.strip().splitlines()[-1].strip() == last


def test_many_failures_end_with_where_to_look(run, job):
    jobs = [job(f"j{i}", 0, 0, 1, status="failed") for i in range(30)]
    lines = failures(compare([run(jobs)]))
    assert len(lines) == 21
    assert lines[0] == "fifo, j0: no reason given (simulated #0)"
    assert lines[-1] == "and 10 more; jobs.csv names them all"


def test_jobs_that_finished_on_one_side_only_are_a_warning(run, job):
    predicted = run([job("a", 0, 0, 10), job("b", 0, 0, 10)])
    real = run([job("a", 0, 0, 10)], cluster="local", repeat=1)
    assert any(
        "1 job finished only in the prediction or only when observed (b)" in w
        for w in warnings(compare([predicted, real]))
    )


def test_the_verdict_names_the_worst_error_and_the_ranking(runs):
    accuracy, ranking, best = verdict(compare(runs))
    assert "within 2.08% of the observed one for all 2 policies" in accuracy
    assert accuracy.endswith("the largest error is that of fifo (−2.08%).")
    assert ranking.endswith("rank the policies alike by mean JCT: fifo < las.")
    assert best.startswith("The shortest observed mean JCT is 26.9") and best.endswith(" to 27.5 s, with fifo.")


def test_the_verdict_does_not_rank_what_the_repeats_do_not_tell_apart(run, job):
    def runs(policy, predicted, *observed):
        return [
            run([job("a", 0, 0, jct)], policy=policy, cluster="local" if i else "simulated", repeat=i)
            for i, jct in enumerate((predicted, *observed))
        ]

    apart = verdict(compare(runs("p", 10, 20, 21) + runs("q", 12, 14, 15)))
    assert "Predicted ranking by mean JCT: p < q." in apart
    assert "Observed ranking by mean JCT: q < p." in apart
    blurred = verdict(compare(runs("p", 10, 14, 21) + runs("q", 12, 14, 15)))
    assert any(line.endswith("alike by mean JCT: q ≈ p.") for line in blurred)
    assert verdict(compare([])) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (seconds(0.1234), "0.123"),
        (seconds(0), "0.00"),
        (seconds(4.567), "4.57"),
        (seconds(78.94), "78.9"),
        (seconds(12345.6), "12,346"),
        (seconds(None), "–"),
        (percent(0.0042), "+0.42%"),
        (percent(-0.1234), "−12.3%"),
        (percent(-0.000001), "0.00%"),
        (percent(15.0), "+1,500%"),
        (percent(0.05, signed=False), "5.00%"),
        (percent(None), "–"),
        (share(0.789), "78.9%"),
        (count(3), "3"),
        (count(100), "100"),
        (count(8 / 3), "2.67"),
        (correlation(0.99996), "0.999"),
        (correlation(1.0), "1.000"),
        (correlation(-0.5), "-0.500"),
        (list_some(list("abcdefg")), "a, b, c, d, e and 2 more"),
        (list_some(["a", "b"]), "a, b"),
    ],
)
def test_figures_in_words(text, expected):
    assert text == expected
