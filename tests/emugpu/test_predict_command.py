"""`emugpu predict`, from arguments to output and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emugpu.__main__ import main
from emulator_runtime.domain.units import GIB
from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.records import Launch, RankTrace, Trace, Work
from tests.support.traces import Host, hosts

A100 = "NVIDIA_A100-SXM4-40GB"
WORK = Work("gemm", 1, flops=4e12, precision=4)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose trace has three steps, and 50 GiB of memory."""
    host = Host()
    host.memory(50 * GIB)
    for _ in range(3):
        host.records.append(Launch(0, 0, 0, 0, WORK))
        host.launch(1000)
    read = Trace([RankTrace(0, host.records, {}, (A100,))])
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: read if folder == tmp_path else None)
    return tmp_path


def test_a_line_for_each_type(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(trace), "--gpu", "A100", "--gpu", "H100"]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("NVIDIA")}
    assert "out of memory" in rows[A100]
    assert "GiB of" in rows["NVIDIA-H100-80GB-HBM3"]
    assert all("compute" in row for row in rows.values() if "bound" not in row and "rank" not in row)
    assert f"{A100}: out of memory on rank 0 (50." in out


def test_json_and_files(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out" / "new"
    assert main(["predict", str(trace), "--format", "json", "--out", str(folder)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "prediction.json").read_text(encoding="utf-8"))
    (found,) = printed
    assert found["gpu_type"] == A100
    assert found["out_of_memory_ranks"] == [0]
    assert found["step_s"] == pytest.approx(sum(found["step_seconds"].values()))
    assert found["ranks"][0]["steps"] == 3
    assert (folder / f"timeline-{A100}.json.gz").stat().st_size > 100


def test_tokens_samples_and_prices_become_throughput_and_cost(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 3.6 an hour a GPU costs 0.001 a second."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("H100: 7.2\nA100: 1\n", encoding="utf-8")
    arguments = ["predict", str(trace), "--gpu", "A100", "--gpu", "H100", "--gpu", "V100"]
    arguments += [
        "--tokens",
        "4000",
        "--samples",
        "8",
        "--price",
        str(prices),
        "--price",
        "A100=3.6",
        "--step-time",
        "20ms",
    ]
    assert main([*arguments, "--format", "json"]) == 0
    a100, h100, v100 = json.loads(capsys.readouterr().out)
    assert a100["gpus"] == 1
    assert a100["tokens_per_s"] == pytest.approx(200_000, rel=1e-5)
    assert a100["tokens_per_s_per_gpu"] == a100["tokens_per_s"]
    assert a100["samples_per_s"] == pytest.approx(400, rel=1e-5)
    assert a100["price_per_gpu_hour"] == 3.6
    assert a100["cost_of_a_step"] == pytest.approx(20e-6, rel=1e-5)
    assert a100["cost_of_a_million_tokens"] == pytest.approx(0.005, rel=1e-5)
    assert a100["cost_of_a_thousand_samples"] == pytest.approx(0.0025, rel=1e-5)
    assert h100["cost_of_a_step"] == pytest.approx(h100["step_s"] * 0.002)
    assert v100["cost_of_a_step"] is v100["price_per_gpu_hour"] is None
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for heading in ("Tokens/s", "Samples/s", "a GPU", "Cost of a step", "1M tokens", "1,000 samples"):
        assert all(word in out for word in heading.split())
    assert "Bubble" not in out, "there are no messages"


def test_a_report_is_written(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    (trace / "trace.json").write_text(
        json.dumps({"command": ["python", "<train>.py"], "gpu_type": A100, "gpus": 1, "exit_status": 0, "version": 1})
    )
    assert (
        main(["predict", str(trace), "--gpu", "A100", "--gpu", "H100", "--tokens", "4000", "--out", str(folder)]) == 0
    )
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Predicted: python &lt;train&gt;.py" in page
    assert "out of memory on rank 0" in page
    data = json.loads(page.split('id="report-data">')[1].split("</script>")[0])
    assert set(data["charts"]) == {"parts", "memory"}
    assert [entry["policy"] for entry in data["gantt"]] == ["A100", "H100"]
    (timeline,) = data["gantt"][0]["runs"]
    assert timeline["figure"]["data"][0]["hovertext"][0].startswith("<b>rank 0: ")


def test_a_slower_network_and_another_placement(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks of one node; the all-reduces of 1 GB take longer on two nodes, and longer still with less network."""
    read = Trace([training_together(host) for host in hosts(2)])
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: read)
    steps = []
    file = tmp_path / "topology.yaml"
    file.write_text("nodes: 2\nnetwork_gbps: 10\n", encoding="utf-8")
    for options in (
        [],
        ["--pcie-only"],
        ["--nodes", "2", "--network-gbps", "200"],
        ["--gpus-per-node", "1"],
        ["--topology", str(file)],
        ["--topology", str(file), "--network-gbps", "5"],
    ):
        assert main(["predict", str(trace), "--format", "json", *options]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        steps.append(found["step_s"])
    on_nvlink, on_pcie, on_two_nodes, on_100, on_10, on_5 = steps
    assert on_nvlink < on_pcie == pytest.approx(on_two_nodes, rel=0.2)
    assert on_two_nodes < on_100 < on_10 < on_5
    assert on_5 - on_10 == pytest.approx(1e9 / (0.625e9 * 0.92) - 1e9 / (1.25e9 * 0.92), rel=0.01)
    assert main(["predict", str(trace)]) == 0
    assert f"Memory peak by rank on {A100}, GiB: 0: 1.00, 1: 1.00" in capsys.readouterr().out


def training_together(host: Host) -> RankTrace:
    host.memory(1 * GIB)
    for step in range(3):
        host.records.append(Launch(0, 0, 0, 0, WORK))
        host.launch(1000)
        host.all_reduce(step, 10**9)
    return RankTrace(host.rank, host.records, host.communicators, (A100,), Roofline(A100).context_bytes)


def test_a_step_time_anchors_all_types(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", str(trace), "--gpu", "A100", "--gpu", "H100", "--format", "json", "--step-time", "30ms"]
    assert main(arguments) == 0
    a100, h100 = json.loads(capsys.readouterr().out)
    assert a100["step_s"] == pytest.approx(0.03, rel=1e-5)
    assert a100["ranks"][0]["factor"] == h100["ranks"][0]["factor"]
    assert h100["step_s"] < 0.03


def test_without_steps_it_says_so(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = Trace([RankTrace(0, [Launch(0, 0, 0, 0, WORK)], {}, (A100,))])
    monkeypatch.setattr("emugpu.prediction.predict.read_trace", lambda folder: once)
    assert main(["predict", str(trace)]) == 0
    assert "No step was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step-time", "fast"], "--step-time: must be a time above 0 such as 86ms, not fast"),
        (["--step-time", "0ms"], "--step-time: must be a time above 0"),
        (["--step-time", "1h"], "--step-time: rank 0 does nothing twice in a row"),
        (["--network-gbps", "0"], "--network-gbps: must be a number above 0"),
        (["--network-gbps", "inf"], "--network-gbps: must be a number above 0"),
        (["--gpu", "A10000"], "--gpu: unknown GPU type 'A10000'"),
        (["--tokens", "0"], "--tokens: must be a number above 0"),
        (["--samples", "-1"], "--samples: must be a number above 0"),
        (["--price", "A100=dear"], "--price: must be TYPE=NUMBER or a file, not A100=dear"),
        (["--price", "A100=0"], "--price: A100: must be > 0"),
        (["--price", "A10000=3"], "--price: A10000: unknown GPU type 'A10000'"),
        (["--price", "no-file"], "no-file: can't read the price list"),
        (["--topology", "no-file"], "no-file: can't read the topology"),
        (["--gpus-per-node", "0"], "--gpus-per-node: must be 1 or more"),
        (["--nodes", "1", "--gpus-per-node", "0"], "--gpus-per-node: must be 1 or more"),
        (["--pcie-only", "--nvlink-domain", "8"], "--pcie-only: and --nvlink-domain contradict each other"),
        (["--oversubscription", "0.5"], "--oversubscription: must be a number from 1 on"),
        (["--network-latency", "fast"], "--network-latency: must be a time such as 2us, not fast"),
        (["--sm-share", "1"], "--sm-share: must be a number from 0 to below 1"),
        (["--gpu", "A100", "--gpu", "H100", "--kernel-table", "x"], "--kernel-table: has the times of one GPU type"),
    ],
)
def test_wrong_arguments_are_one_line(
    trace: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(trace), *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
