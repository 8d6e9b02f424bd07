from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from plotly.offline import get_plotlyjs

from scheduler_sims.record import Span
from scheduler_sims.reports.comparison import compare
from scheduler_sims.reports.page.charts import gpus_of_jobs, jct_cdf, predicted_against_observed
from scheduler_sims.reports.page.html import render, write_report
from scheduler_sims.reports.page.palette import JOB_COLOURS, POLICY_COLOURS, policy_colours, short_name

META = {"workload": "jobs.csv", "seed": 7, "costs": {"start_s": 2.0, "stop_s": 1.0}}
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Collects scripts, text and attributes, and checks that elements are nested properly."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.scripts, self.words, self.elements = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attrs, before = self.scripts[-1]
            self.scripts[-1] = (attrs, before + data)
        elif self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)

    @property
    def data(self):
        return json.loads(next(text for attrs, text in self.scripts if attrs.get("id") == "report-data"))


def page_of(runs, meta=META):
    return Page(render(runs, compare(runs), meta))


def without_plotly(text):
    return text.replace(get_plotlyjs(), "")


def named(runs, name):
    """The same runs with `name` in everything that a user can name."""
    return [
        replace(
            run,
            policy=f"{run.policy} {name}",
            nodes=tuple(f"{node} {name}" for node in run.nodes),
            jobs=tuple(replace(job, job_id=f"{job.job_id} {name}", user=name, reason=name) for job in run.jobs),
            spans=tuple(replace(s, job_id=f"{s.job_id} {name}", node=f"{s.node} {name}") for s in run.spans),
            notes=(name,),
        )
        for run in runs
    ]


def test_the_headline_figures_are_there_as_text(runs):
    text = page_of(runs).text
    for word in ("fifo and las compared", "26.7", "−2.08%", "Spearman", "1.000", "jobs.csv", "start_s 2.0, stop_s 1.0"):
        assert word in text
    assert "each policy 2 times" in text
    assert "Read this first" not in text


def test_the_page_has_all_charts_and_a_place_for_each(runs):
    page = page_of(runs)
    places = {attrs.get("id") for _, attrs in page.elements}
    assert set(page.data["charts"]) == {"jct-cdf", "scatter", "queue"}
    assert {"jct-cdf", "scatter", "queue", "gantt", "gantt-policy", "gantt-cluster"} <= places
    assert [entry["policy"] for entry in page.data["gantt"]] == ["fifo", "las"]
    assert [run["name"] for run in page.data["gantt"][0]["runs"]] == ["predicted", "observed (local #1)"]
    for figure in page.data["charts"].values():
        axes = [axis for name, axis in figure["layout"].items() if re.fullmatch(r"[xy]axis\d*", name)]
        assert len(axes) >= 2
        assert all(axis["title"]["text"] for axis in axes)


def test_hostile_names_are_text_and_nothing_else(runs, hostile):
    changed = named(runs, hostile)
    text = render(changed, compare(changed), {hostile: hostile})
    page, plain = Page(text), page_of(runs)
    assert len(page.scripts) == len(plain.scripts) == 3
    assert not {"img", "a", "iframe", "link"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert f"fifo {hostile}" in page.text
    assert page.data["gantt"][0]["policy"] == f"fifo {hostile}"
    assert "<" not in next(body for attrs, body in page.scripts if attrs.get("id") == "report-data")


def test_hostile_names_are_no_markup_for_plotly_either(runs, hostile):
    def strings(value):
        if isinstance(value, dict):
            for item in value.values():
                yield from strings(item)
        elif isinstance(value, list):
            for item in value:
                yield from strings(item)
        elif isinstance(value, str):
            yield value

    data = page_of(named(runs, hostile)).data
    drawn = [data["charts"], [run["figure"] for entry in data["gantt"] for run in entry["runs"]]]
    shown = [s for s in strings(drawn) if "evil" in s and not s.endswith(hostile)]  # legendgroup is not drawn
    assert shown
    assert not [s for s in shown if re.search(r"<(?!/?b>|br>|/?extra>)", s)]


def test_nothing_is_fetched(runs):
    text = render(runs, compare(runs), META)
    page, own = Page(text), without_plotly(text)
    assert "http://" not in own and "https://" not in own and "url(" not in own and "@import" not in own
    assert not any({"src", "href", "srcset", "action"} & attrs.keys() for _, attrs in page.elements)
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and a.get("http-equiv"))
    assert "default-src 'none'" in policy and "connect-src" not in policy


def test_the_content_security_policy_allows_exactly_the_pages_own_scripts(runs):
    page = page_of(runs)
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and a.get("http-equiv"))
    code = [body for attrs, body in page.scripts if attrs.get("type") != "application/json"]
    hashes = {f"sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}" for body in code}
    assert set(re.findall(r"'(sha256-[^']+)'", policy)) == hashes
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


def test_the_charts_have_no_button_that_sends_them_away(runs):
    script = page_of(runs).scripts[-1][1]
    assert "showSendToCloud: false" in script
    assert (
        re.search(r"modeBarButtons: \[\[(.*?)\]\]", script).group(1) == '"toImage", "zoom2d", "pan2d", "resetScale2d"'
    )


def test_the_same_input_gives_the_same_bytes(runs, tmp_path):
    for name in ("one.html", "two.html"):
        write_report(tmp_path / name, runs, compare(runs), META)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert (tmp_path / "one.html").read_text(encoding="utf-8") == render(runs, compare(runs), META)


def test_predictions_alone(runs):
    page = page_of([run for run in runs if run.cluster == "simulated"])
    assert set(page.data["charts"]) == {"jct-cdf", "queue"}
    assert "nothing was observed" in page.text
    assert "error" not in page.text.split("How the figures are defined")[0]


def test_one_job_no_jobs_and_no_runs(job, run):
    one = page_of([run([job("a", 0, 0, 5)]), run([job("a", 0, 0, 6)], cluster="local", repeat=1)])
    assert len(one.data["charts"]["scatter"]["data"][1]["x"]) == 1
    assert page_of([run([])]).data["gantt"][0]["runs"][0]["figure"]["data"][0]["x"] == []
    assert "No scheduling policy was run" in page_of([]).text


def test_a_thousand_jobs_and_six_policies_stay_below_twelve_megabytes(job, run):
    jobs = [job(f"job-{i:04d}", i, i + 1, i + 500.0 + i % 7) for i in range(1000)]
    runs = [
        run(jobs, policy=f"policy-{p}", cluster=cluster, repeat=repeat)
        for p in range(6)
        for cluster, repeat in (("simulated", 0), ("local", 1), ("local", 2))
    ]
    text = render(runs, compare(runs), META)
    assert len(text) < 12e6
    assert len(Page(text).data["gantt"]) == 6


def test_what_distorts_is_at_the_top_and_failures_are_named(runs, job):
    broken = job("x", 0, 1, 2, status="failed", reason="out of memory")
    changed = [replace(run, jobs=(*run.jobs, broken), notes=("host was busy",)) for run in runs]
    text = page_of(changed).text
    assert text.index("Read this first") < text.index("host was busy") < text.index("Result")
    assert "fifo, x: out of memory (simulated #0, local #1, local #2)" in text


def test_unused_gpus_are_mentioned(runs):
    entry = page_of([replace(run, gpus=5) for run in runs]).data["gantt"][0]["runs"][0]
    assert "3 of 5 GPUs were never used in any run" in entry["caption"]


def test_cdf_lines_are_dashed_for_predictions_only(runs):
    lines = jct_cdf(runs, policy_colours(["fifo", "las"]))["data"]
    assert [(line["name"], "dash" in line["line"], line["showlegend"]) for line in lines] == [
        *(("fifo", False, True), ("fifo", True, False)),
        *(("las", False, True), ("las", True, False)),
    ]
    assert lines[0]["line"]["color"] == lines[1]["line"]["color"] != lines[2]["line"]["color"]
    assert (lines[0]["y"][0], lines[0]["y"][-1], len(lines[0]["x"])) == (0.0, 1.0, 7)


def test_scatter_compares_with_the_mean_of_the_repeats(runs):
    figure = predicted_against_observed(runs, policy_colours(["fifo", "las"]))
    jct, error = figure["data"][1], figure["data"][2]
    assert (jct["text"][0], jct["y"][0], jct["x"][0]) == ("a", 10.0, pytest.approx(10.2))
    assert error["y"][0] == pytest.approx(100 * (10 - 10.2) / 10.2, rel=1e-4)


def test_wide_times_get_a_logarithmic_axis_unless_a_time_is_zero(job, run):
    wide = jct_cdf([run([job("a", 0, 0, 1), job("b", 0, 0, 1000)])], {"fifo": "#000000"})["layout"]["xaxis"]
    assert wide["type"] == "log" and "logarithmic" in wide["title"]["text"]
    assert [t for t in wide["tickvals"] if 1 <= t <= 1000] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    zero = jct_cdf([run([job("a", 0, 0, 0), job("b", 0, 0, 1000)])], {"fifo": "#000000"})["layout"]["xaxis"]
    assert zero["type"] == "linear"


def test_long_names_are_shortened_in_the_middle():
    assert short_name("las") == "las"
    assert short_name("a" * 30 + "b" * 30) == "a" * 16 + "…" + "b" * 16


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*POLICY_COLOURS, *JOB_COLOURS])
@pytest.mark.parametrize("background", ["#ffffff", "#1b1f24"])
def test_colours_show_on_both_backgrounds(colour, background):
    """Contrast ratio of WCAG 2.1 section 1.4.11: at least 3:1 for graphics."""
    high, low = sorted((_luminance(colour), _luminance(background)), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 3


def test_gpus_of_jobs_are_drawn_where_a_policy_changes_their_number(job, run):
    def elastic(policy, cluster, gpus):
        spans = [
            Span("a", "n", 0, 0, 5),
            *(Span("a", "n", device, 6, 9) for device in range(gpus)),
            Span("b", "n", 3, 2, 9),
        ]
        return replace(run([job("a", 0, 0, 9), job("b", 2, 2, 9)], spans), policy=policy, cluster=cluster)

    runs = [elastic("grows", "simulated", 2), elastic("grows", "local", 3), elastic("stays", "simulated", 1)]
    colours = policy_colours(["grows", "stays"])
    figure = gpus_of_jobs(runs, colours)
    assert [(line["name"], line["x"], line["y"]) for line in figure["data"]] == [
        ("a", [0, 2, 5, 6, 9], [1, 1, 0, 3, 0]),
        ("b", [0, 2, 5, 6, 9], [0, 1, 1, 1, 0]),
    ]
    assert "GPUs of each job over time" in page_of(runs).text
    assert gpus_of_jobs(runs[2:], colours) is None
    assert "GPUs of each job over time" not in page_of(runs[2:]).text
    both = gpus_of_jobs([*runs, elastic("also", "simulated", 4)], policy_colours(["grows", "stays", "also"]))
    assert [line["yaxis"] for line in both["data"]] == ["y", "y", "y2", "y2"]
