"""The parts of `kubectl emugpu` one by one: figures, charts, watching, completion, refusals."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from emugpu.kubectl import completion, options, output
from emugpu.kubectl.__main__ import _EPILOG, command_in, parser
from emugpu.kubectl.gantt_chart import ASCII, BOXES, Bar, Line, clock, draw, ticks
from emugpu.kubectl.job_views import job_view
from emugpu.kubectl.label_experiments import runs_named, runs_of
from emugpu.kubectl.node_views import device_figures, managers_of
from emugpu.kubectl.output import Answer, duration
from emulator_runtime.domain.errors import ClusterError, InputError, ProtocolError
from operators.kube.api import EMUJOB, NODE, POD, ApiAwayError, ForbiddenError, NotThereError
from operators.kube.documents import Key
from operators.objects.pod import Pod

Printed = Callable[..., tuple[int, str, str]]


# -- figures -----------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_no_metrics_is_refused() -> None:
    for text in ("<html>", 'emugpu_device_healthy{uuid="u"} 1\n', 'emugpu_device_healthy{uuid="u" 1\n'):
        with pytest.raises(ProtocolError, match="not the metrics of a sharing manager"):
            device_figures(text)
    assert device_figures("") == []


@given(st.floats(-1e7, 1e7))
def test_durations_are_short(value_s: float) -> None:
    assert len(duration(value_s).lstrip("-")) <= 7
    assert duration(value_s)[-1] in "smh"


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (0, "0.00s"),
        (9.994, "9.99s"),
        (37.06, "37.1s"),
        (99.96, "1m40s"),
        (3599.6, "1h00m"),
        (11220, "3h07m"),
        (190800, "2d05h"),
    ],
)
def test_durations_read_like_this(value_s: float, text: str) -> None:
    assert duration(value_s) == text


def test_an_odd_status_reads_as_not_known() -> None:
    odd: dict[str, Any] = {
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"steps": "many", "scheduler": 7},
        "status": {
            "phase": ["Running"],
            "observedJCTSeconds": "soon",
            "slowdown": True,
            "fairness": float("nan"),
            "predictedJCTSeconds": 5,
            "submittedAt": "yesterday",
            "runs": ["x", {"from": "never"}, {"from": "2026-01-01T00:00:00Z", "devices": "GPU-1", "to": 3}],
            "conditions": [{"type": 1}],
        },
    }
    job = job_view(odd)
    figures = (job.observed_jct_s, job.slowdown, job.fairness, job.predicted_jct_s, job.submitted_s)
    assert (job.phase, job.steps, job.scheduler, figures) == ("", 0, "", (None,) * 5)
    (run,) = job.runs
    assert (run.devices, run.to_s) == ((), None)


# -- charts ------------------------------------------------------------------------------------------------------------


def test_bars_lie_where_their_times_are() -> None:
    bars = (Bar("a", 0, 10), Bar("bb", 10, 20, on=True))
    axis, line = draw([Line("w/0", bars, "99%")], 20.0, 40 + 2 + 5 + 2, BOXES)
    assert line.plain == f"w/0  ├a{'─' * 17}┤├bb{'─' * 16}▶  99%"
    assert axis.plain.startswith("     ╵0s")


def test_a_terminal_without_these_signs_gets_others() -> None:
    bars = (Bar("", 0, 20, waits=True), Bar("a", 5, 10), Bar("b", 10, 10.1), Bar("c", 19.9, 20, on=True))
    _, line = draw([Line("j", bars)], 20.0, 0, ASCII)
    assert line.plain.isascii()
    assert line.plain == f"j  {'.' * 10}[a-------]|{'.' * 18}>"


@given(
    bars=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.booleans()), max_size=6),
    length_s=st.floats(1e-3, 1e7),
    width=st.integers(0, 300),
)
def test_a_chart_is_never_wider_than_asked(bars: list[tuple[float, float, bool]], length_s: float, width: int) -> None:
    own = tuple(Bar("job", min(a, b) / 100 * length_s, max(a, b) / 100 * length_s, on=on) for a, b, on in bars)
    axis, line = draw([Line("label", own, "n")], length_s, width)
    most = max(width, 40 + 5 + 1 + 4)
    assert line.cell_len <= most
    assert axis.cell_len <= most + 12
    assert len(ticks(length_s, 60)) <= 7


def test_clocks_have_the_digits_that_they_need() -> None:
    assert [clock(0.5, 1), clock(90, 119), clock(65, 3000), clock(3661, 8000), clock(90000, 5e5)] == [
        *("0.5s", "90s", "1:05", "1:01:01", "1d 01h"),
    ]


# -- terminals ---------------------------------------------------------------------------------------------------------


def test_colours_are_for_terminals(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=200, highlight=False, color_system="truecolor")
    monkeypatch.setattr(output, "stdout", lambda: terminal)
    assert world.run("jobs") == 0
    assert world.run("gantt") == 0
    assert "\x1b[32mRunning" in screen.getvalue()
    assert "\x1b[31mFailed" in screen.getvalue()
    assert "├bert-1" in screen.getvalue()
    assert max(len(Text.from_ansi(line).plain) for line in screen.getvalue().splitlines()) <= 200


def test_names_cant_move_the_cursor(world: Any, printed: Printed) -> None:
    document = world.api.stored(EMUJOB, "lab/vgg-3")
    document["status"]["conditions"][1]["message"] = "\x1b[2Jgone\nnext"
    _, out, _ = printed("explain", "vgg-3")
    assert "\x1b" not in out
    assert "?[2Jgone?next" in out


# -- watching ----------------------------------------------------------------------------------------------------------


class Waits:
    """Stands for sleeping: each wait does the next thing, the last one is Ctrl-C."""

    def __init__(self, *things: Callable[[], None]) -> None:
        self.things = list(things)

    def __call__(self, _duration_ns: int) -> None:
        if not self.things:
            raise KeyboardInterrupt
        self.things.pop(0)()


def test_watching_prints_what_is_new(world: Any, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def progress() -> None:
        world.api.stored(EMUJOB, "ops/other-9")["status"]["stepsDone"] = 4

    monkeypatch.setattr(output, "sleep_ns", Waits(lambda: None, progress, lambda: None))
    code, out, _ = printed("jobs", "-n", "ops", "--watch", "-o", "json")
    assert code == 0
    assert [json.loads(line)[0]["steps_done"] for line in out.splitlines()] == [3, 4]
    monkeypatch.setattr(output, "sleep_ns", Waits(lambda: None))
    code, out, _ = printed("jobs", "-n", "ops", "--watch")
    assert (code, out.count("other-9")) == (0, 1)


def test_watching_outlives_a_server_that_is_away(world: Any, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        world.api.failures["list"] = [ApiAwayError("list emujobs: nobody answers")]

    monkeypatch.setattr(output, "sleep_ns", Waits(away, lambda: None))
    code, out, err = printed("jobs", "-n", "ops", "--watch", "-o", "csv")
    assert (code, out.count("ops,other-9,")) == (0, 3)
    assert "nobody answers" in err
    world.api.failures["list"] = [ApiAwayError("list emujobs: nobody answers")]
    assert printed("jobs", "--watch")[0] == 2
    monkeypatch.setattr(
        output, "sleep_ns", Waits(lambda: world.api.failures.update(list=[ForbiddenError("list emujobs: no")]))
    )
    assert printed("jobs", "--watch")[0] == 2


def test_watching_on_a_terminal_stays_in_place(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120, height=30)
    monkeypatch.setattr(output, "stdout", lambda: terminal)
    monkeypatch.setattr(output, "sleep_ns", Waits(lambda: None))
    assert world.run("top", "--watch") == 0
    assert screen.getvalue().startswith("\x1b[?1049h")
    assert screen.getvalue().endswith("\x1b[?1049l")


@pytest.mark.parametrize("every", ["0", "1e9", "nan"])
def test_a_pause_that_is_none_is_refused(printed: Printed, every: str) -> None:
    code, _, err = printed("jobs", "-w", "--every", every)
    assert (code, "--every: must be from 0.2" in err) == (2, True)


# -- refusals ----------------------------------------------------------------------------------------------------------

FORBIDDEN = (
    'list emujobs: emujobs.emugpu.dev is forbidden: User "ann" cannot list; the chart\'s RBAC gives this right, ...'
)


def test_what_is_forbidden_is_said_with_what_to_do(world: Any, printed: Printed) -> None:
    for command in (["jobs"], ["gantt"], ["top", "devices"]):
        world.api.failures["list"] = [ForbiddenError(FORBIDDEN), ForbiddenError(FORBIDDEN)]
        code, out, err = printed(*command)
        assert (code, out) == (2, "")
        assert err.endswith("cannot list; docs/kubectl.md lists the rights that each command needs\n")
        world.api.failures.clear()


def test_a_cluster_without_emujobs_says_what_is_missing(world: Any, printed: Printed) -> None:
    world.api.failures["list"] = [NotThereError("list emujobs: 404 page not found")]
    code, _, err = printed("jobs")
    assert (code, "has no resource EmuJob: install the chart" in err) == (2, True)
    world.api.failures.update(get=[NotThereError("get emujobs x: 404")], list=[NotThereError("list emujobs: 404")])
    assert "has no resource EmuJob" in printed("explain", "x")[2]


def test_explain_tells_what_it_could_not_see(world: Any, printed: Printed) -> None:
    real, refused = world.api.list, (POD, NODE)

    async def list_some(resource: Any, **options: Any) -> Any:
        if resource in refused:
            raise ForbiddenError(f"list {resource.plural}: no")
        return await real(resource, **options)

    world.api.list = list_some
    code, out, err = printed("explain", "bert-1")
    assert code == 0
    assert "on w1 (GPUs GPU-" in out
    assert err.count("kubectl emugpu: not seen: list ") == 2
    assert "devices have no index of their node" in printed("gantt")[2]


def a_manager(on: str, namespace: str, pod: str) -> Pod:
    labels = {"app.kubernetes.io/component": "node", "app.kubernetes.io/part-of": "emugpu"}
    more: dict[str, Any] = {"service_account": "emugpu-node", "owner_kind": "DaemonSet", "ports": {"manager": 9400}}
    return Pod(Key(namespace, pod, pod), node=on, labels=labels, **more)


def test_a_tenants_pod_is_no_nodes_manager() -> None:
    real = [a_manager(on, "emugpu-system", f"m-{on}") for on in ("w1", "w2")]
    forged = [a_manager("w1", "tenant", "f"), a_manager("w3", "a-team", "g")]
    for pods in ([*real, *forged], [*forged, *real]):
        assert managers_of(pods) == ({"w1": real[0], "w2": real[1]}, "")
    elsewhere = [a_manager("w1", "gpus", "m")]
    assert managers_of(elsewhere) == ({"w1": elsewhere[0]}, "")
    found, problem = managers_of([*elsewhere, *forged])
    assert (found, problem.split(" look ")[0]) == ({}, "pods of the namespaces a-team and gpus and tenant")
    assert managers_of([]) == ({}, "")


def test_gpus_that_are_gone_get_rows_of_their_own(world: Any, printed: Printed) -> None:
    world.api.stored(EMUJOB, "lab/res-2")["status"]["runs"][0]["devices"] = ["GPU-gone::3", "GPU-gone::4"]
    _, out, _ = printed("gantt")
    assert [line.split()[0] for line in out.splitlines() if "res-2" in line] == ["w1/4"]


# -- options and completion --------------------------------------------------------------------------------------------


def test_the_value_of_an_option_is_no_command() -> None:
    assert command_in(["-n", "jobs", "top"]) == "top"
    assert command_in(["--context", "top"]) is None
    assert command_in(["--version"]) is None


def test_options_stand_before_and_after_the_command(world: Any, printed: Printed) -> None:
    before, after = printed("-n", "ops", "jobs"), printed("jobs", "-n", "ops")
    assert before == after
    assert "other-9" in before[1]
    assert printed("jobs", "--colour")[0] == 2
    assert printed()[0] == 2
    assert printed("--version")[:1] == (0,)
    code, out, _ = printed("--help")
    assert (code, all(word in out for word in ("top", "gantt", "explain", "exit status"))) == (0, True)


def completed(world: Any, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert completion.main(words, world.connect) == 0
    *offers, directive = capsys.readouterr().out.splitlines()
    assert directive == ":4"
    return [offer.partition("\t")[0] for offer in offers]


def test_completion_knows_the_words(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")

    def offers(*words: str) -> list[str]:
        return completed(world, capsys, *words)

    assert offers("") == sorted(["top", "jobs", "gantt", "explain", "experiment", "smi"])
    assert offers("-n", "ops", "ex") == ["experiment", "explain"]
    assert offers("--n") == ["--namespace"]
    assert offers("top", "") == ["devices", "jobs", "nodes"]
    assert offers("top", "nodes", "") == []
    assert offers("jobs", "--phase", "R") == ["Rejected", "Running"]
    assert offers("jobs", "-o", "") == ["csv", "json", "wide"]
    assert "--all-namespaces" in offers("jobs", "--a")
    assert offers("explain", "b") == ["bad-6", "bert-1"]
    assert offers("explain", "-n", "ops", "") == ["other-9"]
    assert offers("smi", "w") == ["w1", "w2", "w3"]
    assert offers("jobs", "--context", "") == []
    world.api.failures["list"] = [ClusterError("no")]
    assert offers("explain", "") == []
    assert completion.main(["gantt", "--html", ""], world.connect) == 0
    assert capsys.readouterr().out == ":0\n"


def test_an_answer_without_lines_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(Answer([], [], none="nothing"), "")
    output.show(Answer([], [], none="nothing"), "json")
    assert capsys.readouterr() == ("[]\n", "nothing\n")


def test_the_lines_of_guide_and_help_can_be_typed() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "kubectl.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:\$|  )? *kubectl emugpu ([a-z][^\n#]*)", guide + _EPILOG, re.MULTILINE)
    assert len(lines) >= 7
    for line in lines:
        words = shlex.split(line)
        parser(command_in(words)).parse_args(words, argparse.Namespace(**options.DEFAULTS))


def test_a_run_is_called_by_the_policy_that_its_emujobs_name() -> None:
    """As `emugpu compare` marks them; the scheduler's name, exp-6b-3, says nothing to a reader."""

    def emujob(name: str, policy: str, predicted_s: float) -> dict[str, Any]:
        return {
            "metadata": {
                "name": name,
                "namespace": "emugpu-exp-6b-3",
                "labels": {"emugpu.dev/experiment": "6b-3"},
                "annotations": {"emugpu.dev/policy": policy},
            },
            "spec": {"scheduler": {"actuator": "jobs", "name": "exp-6b-3"}},
            "status": {"predictedJCTSeconds": {"value": predicted_s, "by": "las", "at": "2026-01-01T00:00:00Z"}},
        }

    title = "las:threshold_s=300"
    (run,) = runs_of([emujob("a", title, 40.0), emujob("b", title, 20.0)])
    assert (run.policy, run.experiment, run.label, run.predicted_mean_jct_s) == (title, "6b", "6b-3", 30.0)


def labelled(namespace: str, label: str, hour: int, scheduler: str = "fifo") -> dict[str, Any]:
    return {
        "metadata": {
            "name": "j",
            "namespace": namespace,
            "labels": {"emugpu.dev/experiment": label},
            "annotations": {"emugpu.dev/policy": "srtf"},
        },
        "spec": {"scheduler": {"name": scheduler}},
        "status": {"submittedAt": f"2026-01-01T{hour:02}:00:00Z"},
    }


def test_a_label_of_users_is_one_experiment_within_one_namespace_whatever_its_number() -> None:
    """As on the dashboard: only namespaces of runs, which tenants don't create, make one experiment of ID-1 and ID-2."""
    runs = runs_of(
        [
            *(labelled("lab", label, 1) for label in ("bert-50", "bert-100", "demo")),
            labelled("other", "demo", 2),
            labelled("lab", "6b-1", 3),
            labelled("emugpu-exp-6b-10", "6b-10", 9),
            labelled("emugpu-exp-6b-2", "6b-2", 4),
        ]
    )
    assert [(run.experiment, run.label, run.policy, run.repeat) for run in runs] == [
        ("lab.6b-1", "6b-1", "fifo", 1),
        ("6b", "6b-10", "srtf", 2),
        ("6b", "6b-2", "srtf", 1),
        ("lab.bert-100", "bert-100", "fifo", 1),
        ("lab.bert-50", "bert-50", "fifo", 1),
        ("lab.demo", "demo", "fifo", 1),
        ("other.demo", "demo", "fifo", 1),
    ]
    assert runs_named(runs, "bert") == []
    assert [run.label for run in runs_named(runs, "bert-50")] == ["bert-50"]
    assert [run.label for run in runs_named(runs, "6b")] == ["6b-2", "6b-10"]
    assert [(run.label, run.repeat) for run in runs_named(runs, "6b-10")] == [("6b-10", 1)]
    assert [run.namespace for run in runs_named(runs, "other.demo")] == ["other"]
    with pytest.raises(InputError, match=r"demo is the label of experiments lab\.demo, other\.demo; give one"):
        runs_named(runs, "demo")
