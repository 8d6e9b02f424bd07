"""`emugpu search`, from a recipe to output, files and exit status. A stand-in does what `emugpu trace` would."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from emugpu.__main__ import main
from emulator_runtime.prediction.reading import Manifest, write_manifest
from emulator_runtime.prediction.records import Launch, Memory, RankTrace, Record, Trace, Work

A100 = "NVIDIA_A100-SXM4-40GB"
RECIPE = """
command: train {batch} {mode}
knobs:
  batch: [1, 2, 4, 64]
  mode: [good, slow, broken]
samples: batch
gpu_types: [A100, V100]
prices: {A100: 3.67, V100: 2.48}
memory_rises_with: [batch]
"""


class Program:
    """What stands in for the process of `emugpu trace`: writes what the command says, and counts."""

    started: ClassVar[list[list[str]]] = []
    options: ClassVar[list[list[str]]] = []
    output: ClassVar[bytes] = b""

    def __init__(self, words: list[str], **options: object) -> None:
        self.options.append(words[: words.index("--")])
        folder, program = Path(words[words.index("--out") + 1]), words[words.index("--") + 1 :]
        self.started.append(program)
        self.status = int(program[2] == "broken")
        if self.status:
            options["stdout"].write(self.output)  # type: ignore[attr-defined]
            options["stdout"].flush()  # type: ignore[attr-defined]
            return
        folder.mkdir(parents=True)
        (folder / "process-1.records").write_text(json.dumps(program), encoding="utf-8")
        write_manifest(folder, Manifest(tuple(program), A100, 1, exit_status=0))

    def wait(self) -> int:
        return self.status

    def terminate(self) -> None:
        """It is over."""


def trace_of_program(folder: Path) -> Trace:
    _, batch, mode = json.loads((folder / "process-1.records").read_text(encoding="utf-8"))
    work = Work("gemm", 1, flops=1e12 * (int(batch) + 2) * (2 if mode == "slow" else 1), precision=4)
    records: list[Record] = [Memory(0, 0, 0, int(batch) << 30), *(Launch(0, 0, 0, 0, work) for _ in range(5))]
    return Trace([RankTrace(0, records, {}, (A100,))])


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Program.started, Program.options, Program.output = [], [], b"Traceback\nValueError: no such mode\n"
    monkeypatch.setattr("emugpu.search.evaluation.subprocess.Popen", Program)
    monkeypatch.setattr("emugpu.search.evaluation.read_trace", trace_of_program)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_the_best_and_why(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(recipe)]) == 0
    captured = capsys.readouterr()
    assert "24 of 24 configurations: 12 done, 8 failed, 4 out of memory" in captured.out
    assert f"best by time: batch 4, mode good, gpu_type {A100}" in captured.out
    assert "than the next one (batch 2, mode good" in captured.out
    assert "ms less of compute for a sample" in captured.out
    assert "exit status 1: ValueError: no such mode" in captured.out
    assert f"batch 64, mode good, gpu_type {A100}: out of memory: rank 0 needs" in captured.err
    found = json.loads(Path("out/search/search.json").read_text(encoding="utf-8"))
    best = found["evaluated"][0]
    assert best["command"] == ["train", "4", "good"]
    assert best["state"] == "done"
    assert best["pareto"]
    assert best["sample_s"] == pytest.approx(best["step_s"] / 4)
    assert best["sample_cost"] == pytest.approx(best["sample_s"] * 3.67 / 3600)
    assert len(found["evaluated"]) == found["allowed_configurations"] == 24


BASELINE = "baseline: {batch: 1, mode: slow, gpu_type: A100}\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("", "", f"the baseline (batch 1, mode slow, gpu_type {A100}) takes 300.0% more for a sample: "),
        ("batch: 1, mode: slow", "batch: 4, mode: good", f"the baseline (batch 4, mode good, gpu_type {A100}) is the best"),
        ("mode: slow", "mode: broken", f"the baseline (batch 1, mode broken, gpu_type {A100}): failed: exit status 1"),
    ],
)  # fmt: skip
def test_the_best_and_a_baseline(
    recipe: Path, old: str, new: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(RECIPE + (BASELINE.replace(old, new) if old else BASELINE), encoding="utf-8")
    assert main(["search", str(recipe)]) == 0
    assert sentence in capsys.readouterr().out
    assert [one["baseline"] for one in json.loads(Path("out/search/search.json").read_text())["evaluated"]].count(
        True
    ) == 1


def test_true_is_no_baseline_where_one_is(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(
        "command: train {batch} good\nknobs: {batch: [1], a: [true, 1]}\nbaseline: {batch: 1, a: 1}\n", encoding="utf-8"
    )
    assert main(["search", str(recipe), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["evaluated"]
    assert [type(one["configuration"]["a"]) for one in found if one["baseline"]] == [int]


def test_the_baseline_is_evaluated_first(recipe: Path) -> None:
    recipe.write_text(RECIPE + BASELINE, encoding="utf-8")
    assert main(["search", str(recipe), "--budget", "1"]) == 0
    assert Program.started == [["train", "1", "slow"]]


def test_a_command_is_traced_once_for_all_gpu_types(recipe: Path) -> None:
    assert main(["search", str(recipe), "--workers", "3"]) == 0
    good = [program for program in Program.started if program[2] != "broken"]
    assert len(good) == len({tuple(program) for program in good}) == 8


def test_a_search_goes_on_where_it_ended(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(recipe), "--budget", "5"]) in (0, 1)
    started = len(Program.started)
    with Path("out/search/evaluations.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"configuration": {"ba')  # the machine stopped in the midst of a line
    assert main(["search", str(recipe), "--all", "--format", "json"]) == 0
    assert '"allowed_configurations": 24' in capsys.readouterr().out
    traced = [tuple(program) for program in Program.started[:started] if program[2] != "broken"]
    again = [tuple(program) for program in Program.started[started:]]
    assert not set(traced) & set(again)
    lines = Path("out/search/evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_another_recipe_needs_another_folder(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(recipe), "--budget", "2"]) in (0, 1)
    recipe.write_text(RECIPE.replace("samples: batch", "samples: 2 * batch"), encoding="utf-8")
    assert main(["search", str(recipe)]) == 2
    assert "is of another recipe; name another folder by --out" in capsys.readouterr().err
    assert main(["search", str(recipe), "--out", "other", "--budget", "2"]) in (0, 1)


def test_a_file_that_no_search_wrote(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out/search").mkdir(parents=True)
    Path("out/search/evaluations.jsonl").write_text("[]\nhello\n", encoding="utf-8")
    assert main(["search", str(recipe)]) == 2
    assert "evaluations.jsonl" in capsys.readouterr().err


def test_nothing_that_runs_is_a_status_of_its_own(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text("command: train {batch} broken\nknobs: {batch: [1, 2]}\n", encoding="utf-8")
    assert main(["search", str(recipe)]) == 1
    assert "2 of 2 configurations: 2 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--budget", "0"], "--budget: must be at least 1, not 0"),
        (["--workers", "-1"], "--workers: must be at least 1, not -1"),
    ],
)
def test_wrong_arguments(recipe: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", str(recipe), *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_constraints_that_allow_nothing(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(RECIPE + "constraints: [batch > 100]\n", encoding="utf-8")
    assert main(["search", str(recipe)]) == 2
    assert "the constraints allow no configuration" in capsys.readouterr().err


JOB = """
command: train {traced} good
knobs: {pp: [1, 2]}
constants: {microbatches: 6}
derived: {traced: 2 * pp}
gpus: 32
gpus_per_node: 4
layout: {tp: 2, pp: pp}
microbatches: microbatches
traced_microbatches: traced
samples: 10
"""


def microbatches_of_program(folder: Path) -> Trace:
    """Three steps of as many products as the command says, then an update of the parameters."""
    _, microbatches, _ = json.loads((folder / "process-1.records").read_text(encoding="utf-8"))
    product, update = Work("gemm", 1, flops=1e12, precision=4), Work("update", 2, bytes=1e9)
    step = [Launch(0, 0, 0, 0, work) for work in (*[product] * int(microbatches), update)]
    return Trace([RankTrace(0, [Memory(0, 0, 0, 1 << 30), *step * 3], {}, (A100,))])


def test_a_job_of_virtual_ranks_with_more_microbatches_than_are_traced(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emugpu.search.evaluation.read_trace", microbatches_of_program)
    recipe.write_text(JOB, encoding="utf-8")
    assert main(["search", str(recipe), "--format", "json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["evaluated"]
    assert one["step_s"] == pytest.approx(two["step_s"], rel=1e-6), "6 microbatches each, whatever was traced"
    assert one["sample_s"] == pytest.approx(one["step_s"] / 10)
    assert [options[4:10] for options in Program.options] == [
        ["--world-size", "32", "--gpus-per-node", "4", "--layout", f"tp=2,pp={stages}"] for stages in (1, 2)
    ]


def test_one_rank_of_several_that_is_out_of_memory(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(JOB.replace("good", "broken"), encoding="utf-8")
    Program.output = b"torch.OutOfMemoryError: CUDA out of memory.\nemugpu: rank 8 failed; its output is above\n"
    assert main(["search", str(recipe)]) == 1
    assert "2 of 2 configurations: 2 out of memory" in capsys.readouterr().out


def test_what_the_recipe_decides_is_wrong_before_anything_is_traced(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(JOB.replace("[1, 2]", "[1, 3]"), encoding="utf-8")
    assert main(["search", str(recipe)]) == 2
    assert "layout: must divide 32, the number of GPUs, and tp 2 x pp 3 is 6 with pp 3" in capsys.readouterr().err
    assert not Program.started


HINT = b"set PYTORCH_CUDA_ALLOC_CONF if you run out of memory\n"


@pytest.mark.parametrize(
    ("output", "result"),
    [
        (HINT + b"ValueError: no such flag\n", "failed: exit status 1: ValueError: no such flag"),
        (b"to avoid out of memory errors, use --small\nValueError: x\n", "failed: exit status 1: ValueError: x"),
        (b"emugpu: no such program\n" + HINT, "failed: exit status 1: emugpu: no such program"),
        (HINT, "failed: exit status 1: set PYTORCH"),
        (b"torch.cuda.OutOfMemoryError: tried 9 GiB\n" + HINT, "out of memory: exit status 1: torch.cuda.OutOfMemoryError"),
        (b"RuntimeError: CUDA error: Out of memory\nemugpu: rank 1\n", "out of memory: exit status 1: RuntimeError"),
        (b"emugpu: rank 3 is out of memory\n", "out of memory: exit status 1: emugpu: rank 3"),
    ],
)  # fmt: skip
def test_out_of_memory_is_an_error_that_says_so(
    recipe: Path, output: bytes, result: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text("command: train {batch} broken\nknobs: {batch: [1]}\n", encoding="utf-8")
    Program.output = output
    assert main(["search", str(recipe), "--out", "out of memory"]) == 1
    assert f"batch 1, gpu_type {A100}: {result}" in capsys.readouterr().err


def test_microbatches_that_are_not_in_the_trace(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(JOB, encoding="utf-8")
    assert main(["search", str(recipe)]) == 1
    assert "failed, 1: TRACE: has no kernel that runs once for each of a step's 2 microb" in capsys.readouterr().out


def test_without_optuna_the_extra_is_named(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in (
        "emugpu.search.optimiser",
        "emugpu.search.journal",
        "emugpu.search.report",
        "emugpu.prediction.search",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["search", str(recipe)]) == 2
    assert "pip install 'emugpu[search]'" in capsys.readouterr().err
