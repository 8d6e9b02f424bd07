"""`emugpu cluster`: what the flags become, what is printed, and the exit status."""

from __future__ import annotations

import argparse
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from cluster_harness.cluster import Clusters, Request
from cluster_harness.nodes.kubectl import Node
from cluster_harness.product.status import ClusterReport, NodeReport
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from cluster_harness.state import KIND, ClusterState
from cluster_harness.steps import Progress
from emugpu.commands import cluster
from emugpu.terminal.cluster_progress import TerminalSteps
from emulator_runtime.domain.errors import InputError

SPEC = ClusterSpec("emugpu", (PoolSpec("default", 2, 8, "A100"),))
STATE = ClusterState(SPEC, KIND, kubeconfig="/k", complete=True)


class FakeKubectl:
    """Two nodes; one of them has GPUs."""

    def nodes(self) -> list[Node]:
        offers: tuple[dict[str, int], ...] = ({"emugpu.dev/emuGPU": 3, "other.dev/gpu": 2}, {})
        return [Node(f"n{i}", "", allocatable=allocatable) for i, allocatable in enumerate(offers)]


@dataclass
class FakeClusters:
    requests: list[Request] = field(default_factory=list)
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def up(self, request: Request) -> ClusterState:
        self.requests.append(request)
        return STATE

    def state(self, name: str) -> ClusterState:
        return STATE

    def kubectl(self, name: str) -> FakeKubectl:
        return FakeKubectl()

    def down(self, name: str) -> None:
        self.calls.append(("down", name))

    def load(self, name: str, image: str) -> None:
        self.calls.append(("load", name, image))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClusters:
    clusters = FakeClusters()
    monkeypatch.setattr(cluster, "_clusters", lambda: clusters)
    return clusters


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cluster.add_parser(parser.add_subparsers())
    args = parser.parse_args(["cluster", *arguments])
    return int(args.run(args))


def test_up_prints_the_cluster(fake: FakeClusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("up", "--nodes", "3", "--gpus", "4", "--gpu-type", "V100") == 0
    (request,) = fake.requests
    assert (request.spec.workers, request.spec.gpus, request.wait, request.with_chart) == (3, 12, True, True)
    assert request.kubeconfig is None
    out = capsys.readouterr().out
    assert "cluster emugpu: 3 nodes, 12 GPUs" in out
    assert "pool default: 3 nodes with 4 x Tesla_V100-PCIE-32GB each, each emulates 32 CPUs and 256Gi of memory" in out
    assert "export KUBECONFIG=/k" in out


def test_up_with_everything(fake: FakeClusters) -> None:
    run(
        *("up", "--name", "lab", "--pool", "old=4xV100:2", "--node-gpus", "1x1xA100", "--cpu-nodes", "1", "--no-wait"),
        *("--kubeconfig", "/lab", "--context", "west", "--image", "r/e:1", "--set", "a=b", "--chart", "/chart"),
    )
    (request,) = fake.requests
    assert [pool.name for pool in request.spec.pools] == ["old", "gpus-1", "cpu"]
    assert (request.kubeconfig, request.context, request.image) == (Path("/lab"), "west", "r/e:1")
    assert (request.chart, request.helm_arguments, request.wait) == (Path("/chart"), ("--set", "a=b"), False)


def test_a_context_alone_means_the_file_of_kubeconfig_that_defines_it(
    fake: FakeClusters, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("east", "west")]
    for file in files:
        cluster = f"clusters: [{{name: {file.name}}}]\n"
        file.write_text(
            f"{cluster}contexts: [{{name: {file.name}, context: {{cluster: {file.name}}}}}]\n", encoding="utf-8"
        )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    run("up", "--context", "west", "--no-chart")
    (request,) = fake.requests
    assert (request.kubeconfig, request.with_chart) == (files[1], False)
    with pytest.raises(InputError, match="--context: unknown context 'north'; known: east, west"):
        run("up", "--context", "north")


def test_a_wrong_flag_begins_nothing(fake: FakeClusters) -> None:
    with pytest.raises(InputError, match="--pool"):
        run("up", "--pool", "nonsense")
    with pytest.raises(InputError, match="--name"):
        run("down", "--name", "../..")
    assert fake.requests == fake.calls == []


def test_reshape_needs_its_flag(fake: FakeClusters) -> None:
    run("up")
    run("up", "--reshape")
    assert [request.reshape for request in fake.requests] == [False, True]


def test_gpus_describe_the_requested_nodes(fake: FakeClusters) -> None:
    run("up")
    assert [(pool.nodes, pool.gpus) for pool in fake.requests[0].spec.pools] == [(2, 8)]
    with pytest.raises(InputError, match="--gpu-type: unknown GPU type 'V1000'"):
        run("up", "--gpu-type", "V1000")
    with pytest.raises(InputError, match="--gpus: describes the nodes of --nodes"):
        run("up", "--gpus", "4", "--cpu-nodes", "1")
    assert len(fake.requests) == 1


@pytest.mark.parametrize("arguments", [("--chart", "/chart"), ("--set", "a=b"), ("--reshape",)])
def test_what_is_about_the_chart_needs_it(fake: FakeClusters, arguments: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=f"{arguments[0]}: is about the chart, which --no-chart leaves out"):
        run("up", "--no-chart", *arguments)
    assert fake.requests == []


def test_without_the_chart_the_offered_gpus_are_printed(fake: FakeClusters, capsys: pytest.CaptureFixture[str]) -> None:
    run("up", "--no-chart")
    assert "cluster emugpu: 2 nodes, which offer 3 GPUs now (--no-chart), " in capsys.readouterr().out


def test_what_another_flag_decides_cannot_be_set(fake: FakeClusters) -> None:
    with pytest.raises(InputError, match=r"--set pools\[0\]\.gpus\[0\]\.count=2: pools come from --nodes, --gpus, "):
        run("up", "--set", "pools[0].gpus[0].count=2")
    with pytest.raises(InputError, match="the image is built from this checkout"):
        run("up", "--set", "redis.image.tag=7")
    assert fake.requests == []
    run("up", "--kubeconfig", "/lab", "--image", "r/e:1", "--set", "redis.image.tag=7")
    assert fake.requests[0].helm_arguments == ("--set", "redis.image.tag=7")


def report(missing: str = "", ready: int = 2) -> ClusterReport:
    nodes = [
        NodeReport("c", True, "", {}, {}),
        NodeReport("w", True, "default", {"emugpu.dev/emuGPU": 8}, {"emugpu.dev/emuGPU": 3}),
        NodeReport("gone", not missing, "default", {}, {}),
    ]
    return ClusterReport("emugpu", "kind", "/k", {}, nodes, {"emugpu-node-x": (ready, 2)}, missing)


def test_status_of_a_healthy_cluster(
    fake: FakeClusters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "report", lambda *_: report())
    assert run("status") == 0
    out = capsys.readouterr().out
    assert "emugpu.dev/emuGPU 3 / 8" in out
    assert "missing" not in out and "NO" not in out


def test_status_names_what_is_missing(
    fake: FakeClusters, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "report", lambda *_: report("w has 0 of 8 GPUs", ready=1))
    assert run("status") == 1
    out = capsys.readouterr().out
    assert "NO" in out
    assert "emugpu-node-x: 1 of 2 containers are ready" in out
    assert "missing: w has 0 of 8 GPUs" in out
    assert run("status", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["healthy"], found["missing"]) == (False, "w has 0 of 8 GPUs")
    assert found["nodes"][1]["gpus"] == {"emugpu.dev/emuGPU": 8}


def test_the_other_verbs(fake: FakeClusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("kubeconfig") == run("down", "--name", "dev") == run("load", "--name", "dev", "a:1") == 0
    assert capsys.readouterr().out == "/k\n"
    assert fake.calls == [("down", "dev"), ("load", "dev", "a:1")]


def test_no_cluster_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMUGPU_CACHE", str(tmp_path))
    assert isinstance(cluster._clusters(), Clusters)
    assert run("down", "--name", "nothing") == 0
    assert "there is no cluster nothing" in capsys.readouterr().err


def test_terminal_lines_stay_when_a_step_is_over() -> None:
    out = io.StringIO()
    ticks = iter((0, 2_000_000_000, 2_000_000_000))
    steps = TerminalSteps(lambda: next(ticks), Console(file=out, force_terminal=False, width=100))
    with steps.step("build") as report:
        report(Progress(3, 4, "packages", "k8s.io/api"))
    steps.say("[text] as it is")
    with pytest.raises(ZeroDivisionError), steps.step("fails"):
        raise ZeroDivisionError
    assert "build  2.0 s" in out.getvalue()
    assert "[text] as it is" in out.getvalue()
    assert "✓ fails" not in out.getvalue()
    assert steps.taken == [("build", 2.0)]


def test_a_terminal_shows_a_bar_with_the_progress() -> None:
    out = io.StringIO()
    steps = TerminalSteps(lambda: 0, Console(file=out, force_terminal=True, width=120, legacy_windows=False))
    with steps.step("build") as report:
        report(Progress(3, 4, "packages", "k8s.io/api"))
    assert "3 of 4 packages (k8s.io/api)" in out.getvalue()
    assert "\u2501" in out.getvalue() and "0:00:0" in out.getvalue()
