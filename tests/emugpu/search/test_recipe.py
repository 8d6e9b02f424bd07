"""Recipes: what they mean, and that mistakes in them are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from emugpu.search.recipe import COST, Recipe, read_recipe, shown
from emulator_runtime.domain.errors import EmuGpuError

RECIPE = """
command: torchrun --nproc-per-node {dp} 'my train.py' --batch={batch} --lr {rate} {again} --amp {amp}
knobs:
  dp: [4, 1, 2]
  batch: [8, 32]
  again: ["", --checkpointing]
  amp: [true, false]
constants: {rate: 0.1, largest: 64}
constraints: [dp * batch <= largest]
gpus: dp
samples: dp * batch
gpu_types: [A100, V100]
prices: {A100: 3, V100: 2.5}
objective: cost
memory_rises_with: [batch]
"""


def recipe(folder: Path, text: str = RECIPE) -> Recipe:
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path)


def test_configurations_are_what_the_constraints_allow(tmp_path: Path) -> None:
    found = recipe(tmp_path)
    assert found.knobs["dp"] == (1, 2, 4), "numbers rise"
    configurations = list(found.configurations())
    assert len(configurations) == 5 * 2 * 2 * 2
    assert {(one["dp"], one["batch"]) for one in configurations} == {(1, 8), (1, 32), (2, 8), (2, 32), (4, 8)}
    assert found.objective == COST
    assert found.prices == {"NVIDIA_A100-SXM4-40GB": 3.0, "Tesla_V100-PCIE-32GB": 2.5}


def test_the_command_is_filled_word_by_word(tmp_path: Path) -> None:
    found = recipe(tmp_path)
    first, *_, last = found.configurations()
    words = ["torchrun", "--nproc-per-node", "1", "my train.py", "--batch=8", "--lr", "0.1", "--amp", "true"]
    assert found.words(first) == words
    assert "--checkpointing" in found.words(last)
    assert found.gpu_count(last) == 4
    assert shown(first) == "dp 1, batch 8, amp true, gpu_type NVIDIA_A100-SXM4-40GB"


def test_a_value_with_blanks_stays_one_word(tmp_path: Path) -> None:
    found = recipe(tmp_path, "command: run {name}\nknobs: {name: ['a; rm -rf b']}\n")
    assert found.words(next(found.configurations())) == ["run", "a; rm -rf b"]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("batch * 2048 / 1", "1048576"),
        ("batch / 2", "256"),
        ("batch * 1000000.5", "512000256"),
        ("batch / 3", "170.66666666666666"),
        ("batch * 0.0001", "0.0512"),
        ("batch * 1e20 * 1", "51200000000000000000000"),
        ("0.00001 * 1", "1e-05"),
        ("batch > 2", "true"),
    ],
)
def test_what_is_worked_out_stands_in_the_command_exactly(tmp_path: Path, expression: str, wanted: str) -> None:
    text = f"command: run {{tokens}}\nknobs: {{batch: [512]}}\nderived: {{tokens: {expression}}}\n"
    found = recipe(tmp_path, text)
    assert found.words(next(found.configurations())) == ["run", wanted]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("{batch}", "{bach}", "recipe.yaml: command: unknown knob 'bach'"),
        ("knobs:", "nobs:", "unknown field 'nobs'"),
        ("  dp: [4, 1, 2]", "  dp: []", "recipe.yaml: knobs.dp: must have at least one value"),
        ("[8, 32]", "[8, 8]", "knobs.batch: has a value twice"),
        ("[8, 32]", "[8, null]", "knobs.batch[1]: must be a number"),
        ("  dp:", "  1: [1]\n  dp:", "1 must be a text; write it in quotes"),
        ("  dp:", "  d-p: [1]\n  dp:", "must have a name of letters"),
        ("  dp:", "  gpu_type: [1]\n  dp:", "is what gpu_types says"),
        ("rate: 0.1", "dp: 1, rate: 0.1", "constants: dp is a knob, too"),
        ("[dp * batch <= largest]", "[dp *]", "constraints[0]: 'dp *' is not an expression"),
        ("V100]", "V1000]", "gpu_types[1]: unknown GPU type 'V1000'"),
        ("V100]", "A100]", "gpu_types: has a GPU type twice"),
        ("[A100, V100]", "[]", "must name at least one GPU type"),
        ("{A100: 3, V100: 2.5}", "{A100: 3}", "objective: is cost, but `prices` has no Tesla_V100-PCIE-32GB"),
        ("{A100: 3, V100: 2.5}", "{A100: 0}", "prices.A100: must be > 0"),
        ("objective: cost", "objective: fun", "objective: must be time or cost, not fun"),
        ("memory_rises_with: [batch]", "memory_rises_with: [bach]", "unknown knob 'bach'"),
        ("memory_rises_with: [batch]", "memory_rises_with: [again]", "again has values that are no numbers"),
        ("'my train.py'", "'my train.py", "recipe.yaml: command: is no command"),
        ("gpus: dp", "gpus: 0", "gpus: must be >= 1"),
        ("knobs:", "knobs: [", "not valid YAML"),
        ("knobs:", "constants: {}\nknobs:", "'constants' is given twice"),
    ],
)
def test_mistakes_name_file_and_field(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in RECIPE
    with pytest.raises(EmuGpuError) as raised:
        recipe(tmp_path, RECIPE.replace(old, new))
    assert problem in str(raised.value)


JOB = """
command: train --tp {tp} --microbatches {traced}
knobs: {tp: [1, 2], pp: [1, 4]}
constants: {batch: 64}
derived:
  microbatches: batch * tp * pp // 8
  traced: min(microbatches, 2 * pp)
gpus: 8
layout: {tp: tp, pp: pp}
microbatches: microbatches
traced_microbatches: traced
"""


def test_a_job_of_virtual_ranks(tmp_path: Path) -> None:
    found = recipe(tmp_path, JOB)
    first, *_, last = found.configurations()
    assert found.words(last) == ["train", "--tp", "2", "--microbatches", "8"]
    assert found.axes(last) == {"tp": 2, "pp": 4}
    assert found.gpus_per_node == 8
    assert found.microbatch_counts(first) == (8, 2)
    assert found.microbatch_counts(last) == (64, 8)
    assert recipe(tmp_path).microbatch_counts(first) == (1, 1), "where nothing is said, the command has all of them"
    assert recipe(tmp_path).axes(first) == {}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("traced: min(microbatches,", "traced: min(microbatch,", "derived.traced: 'min(microbatch, 2 * pp)': there is no microb"),
        ("  traced: min", "  tp: min", "derived.tp: must have a name of letters, digits and _, which no knob or constant has"),
        ("  traced: min", "  gpu_type: min", "derived.gpu_type: must have a name"),
        ("  traced: min", "  if: min", "derived.if: must have another name: if means something else in expressions"),
        ("  traced: min", "  'None': min", "derived.None: must have another name"),
        ("  traced: min", "  min: min", "derived.min: must have another name"),
        ("  traced: min", "  größe: min", "derived.größe: must have a name of letters, digits and _"),
        ("\nmicrobatches: microbatches\ntraced_microbatches: traced", "\nmicrobatches: many", "'many': there is no many"),
        ("\nmicrobatches: microbatches", "", "traced_microbatches: needs `microbatches`, those of a step"),
        ("{tp: tp,", "{tensor: tp,", "recipe.yaml: layout.tensor: unknown axis 'tensor'"),
        ("{tp: tp,", "{tp: tensor,", "layout.tp: 'tensor': there is no tensor"),
        ("gpus: 8", "gpus: 8\ngpus_per_node: 0", "gpus_per_node: must be >= 1"),
    ],
)  # fmt: skip
def test_mistakes_in_a_job_of_virtual_ranks(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in JOB
    with pytest.raises(EmuGpuError) as raised:
        recipe(tmp_path, JOB.replace(old, new))
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "min(microbatches, 2 * pp)",
            "2 * microbatches",
            "recipe.yaml: traced_microbatches: are 16 of 8 with tp 1, pp 1",
        ),
        (
            "min(microbatches, 2 * pp)",
            "1",
            r"at least 2 \(twice as many as stages\) or all 8, and are 1 with tp 1, pp 1",
        ),
        ("min(microbatches, 2 * pp)", "3 / 2", r"traced_microbatches: must be a whole number, and is 1\.5 with tp 1"),
        (
            "microbatches: microbatches\ntraced_microbatches: traced",
            "microbatches: pp / 2",
            r"microbatches: must be a whole",
        ),
        ("batch * tp * pp // 8", "batch * tp * pp / 3", r"microbatches: must be a whole number, and is 21\.3333"),
    ],
)
def test_microbatches_that_cannot_be(tmp_path: Path, old: str, new: str, problem: str) -> None:
    found = recipe(tmp_path, JOB.replace(old, new))
    with pytest.raises(EmuGpuError, match=problem):
        found.microbatch_counts(next(found.configurations()))


@pytest.mark.parametrize(("traced", "enough"), [(7, False), (8, True)])
def test_traced_microbatches_fill_the_pipeline_twice_or_are_all(tmp_path: Path, traced: int, enough: bool) -> None:
    found = recipe(tmp_path, JOB.replace("min(microbatches, 2 * pp)", f"min(microbatches, {traced})"))
    first, _, _, last = found.configurations()
    assert found.microbatch_counts(first) == (8, traced)
    if enough:
        assert found.microbatch_counts(last) == (64, 8)
    else:
        with pytest.raises(EmuGpuError, match=r"at least 8 .* or all 64, and are 7 with tp 2, pp 4"):
            found.microbatch_counts(last)


def test_all_microbatches_are_traced_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    found = recipe(tmp_path, JOB.replace("traced_microbatches: traced\n", ""))
    *_, last = found.configurations()
    assert found.microbatch_counts(last) == (64, 64)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "gpus: 8",
            "gpus: 12 - pp",
            "recipe.yaml: layout: must divide 11, the number of GPUs, and tp 2 x pp 1 is 2 with tp 2",
        ),
        (
            "{tp: tp, pp: pp}",
            "{tp: tp, dp: 4, pp: pp}",
            "layout: must be 8, the number of GPUs, and tp 1 x dp 4 x pp 1 is 4 with tp 1",
        ),
        ("{tp: tp,", "{tp: tp / 2,", "layout.tp: must be a whole number, and is 0.5 with tp 1"),
        (
            "gpus: 8",
            "gpus: 8 * (tp - 1)",
            "gpus: '8 * (tp - 1)' must be a number above 0, and is 0, in the configuration tp 1, pp 1",
        ),
        ("gpus: 8", "gpus: 800\ngpus_per_node: 100", "gpus_per_node: must be from 1 to 64, not 100 with tp 1"),
        ("gpus: 8", "gpus: 8 * tp * 1000", "gpus: must be from 1 to 4096, not 8000 with tp 1"),
        (
            "layout: {tp: tp, pp: pp}",
            "samples: pp - 1",
            "samples: 'pp - 1' must be a number above 0, and is 0, in the configuration tp 1",
        ),
        ("gpus: 8\nlayout: {tp: tp, pp: pp}", "gpus: 65", "gpus: must be from 1 to 64, not 65 with tp 1"),
        ("min(microbatches, 2 * pp)", "2 * pp - 1", "traced_microbatches: must be at least 2 "),
        (
            "{traced}",
            "{odd}",
            "derived.odd: 'tp / (pp - 1)' with pp 1, tp 1: division by zero, in the configuration tp 1, pp 1",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_is(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in JOB
    text = JOB.replace(old, new).replace("derived:\n", "derived:\n  odd: tp / (pp - 1)\n")
    found = recipe(tmp_path, text)
    with pytest.raises(EmuGpuError) as raised:
        found.check(found.configurations())
    assert problem in str(raised.value)


def test_configurations_that_can_be_evaluated_are_no_error(tmp_path: Path) -> None:
    for text in (RECIPE, JOB):
        found = recipe(tmp_path, text)
        found.check(found.configurations())


def test_a_large_grid_is_checked_in_parts_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "".join(f", k{i}: [1, 2, 3, 4]" for i in range(6))
    found = recipe(tmp_path, JOB.replace("pp: [1, 4]}", f"pp: [1, 4]{other}}}"))
    checked: list[tuple[object, object]] = []
    monkeypatch.setattr(Recipe, "_check", lambda self, one: checked.append((one["tp"], one["pp"])))
    found.check(found.configurations())
    assert checked == [(1, 1), (1, 4), (2, 1), (2, 4)], "of 16,384"


def test_constraints_protect_derived_names(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "command: run {tp} {pp} {m}\nknobs: {tp: [1, 2, 4, 8], pp: [1, 2, 4, 8], batch: [64]}\n"
        "derived: {dp: 32 // (tp * pp), m: batch // dp}\nconstraints: [tp * pp <= 32, m < 64]\n",
    )
    configurations = list(found.configurations())
    assert {(one["tp"], one["pp"]) for one in configurations} == {
        (tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) if tp * pp < 32
    }
    found.check(configurations)


def test_derived_names_that_nest_too_deeply_are_an_error(tmp_path: Path) -> None:
    names = "\n".join(f"  d{i}: d{i - 1} + 1" for i in range(1, 400))
    with pytest.raises(EmuGpuError, match=r"derived\.d\d+: 'd\d+ \+ 1': maximum recursion depth"):
        list(
            recipe(
                tmp_path, f"command: run\nknobs: {{d0: [1]}}\nderived:\n{names}\nconstraints: [d399 > 0]"
            ).configurations()
        )


BASELINE = "baseline: {dp: 2, batch: 32, again: '', amp: true, gpu_type: A100}\n"


def test_a_baseline_is_a_configuration(tmp_path: Path) -> None:
    baseline = recipe(tmp_path, RECIPE + BASELINE).baseline
    assert baseline == {"dp": 2, "batch": 32, "again": "", "amp": True, "gpu_type": "NVIDIA_A100-SXM4-40GB"}
    assert recipe(tmp_path).baseline is None
    one_type = RECIPE.replace("gpu_types: [A100, V100]", "gpu_types: [V100]") + BASELINE.replace(", gpu_type: A100", "")
    assert recipe(tmp_path, one_type).baseline == {**baseline, "gpu_type": "Tesla_V100-PCIE-32GB"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("dp: 2", "dp: 3", "baseline: dp has no value 3"),
        ("amp: true", "amp: 1", "baseline: amp has no value 1"),
        ("dp: 2, ", "", "baseline: dp is missing"),
        (", gpu_type: A100", "", "baseline: gpu_type is missing"),
        ("dp: 2", "pp: 2", "unknown field 'pp'"),
        ("gpu_type: A100", "gpu_type: T4", "baseline: gpu_type has no value 'Tesla-T4'"),
        ("dp: 2", "dp: '2'", "baseline: dp has no value '2'"),
        ("dp: 2", "dp: 4", "baseline: is nothing that the constraints allow"),
    ],
)
def test_mistakes_in_a_baseline(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in BASELINE
    with pytest.raises(EmuGpuError) as raised:
        recipe(tmp_path, RECIPE + BASELINE.replace(old, new))
    assert problem in str(raised.value)


def test_an_enormous_grid_is_refused(tmp_path: Path) -> None:
    knobs = "\n".join(f"  k{i}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for i in range(7))
    with pytest.raises(EmuGpuError, match="have 10,000,000 combinations"):
        recipe(tmp_path, f"command: run\nknobs:\n{knobs}\n")


def test_a_part_of_a_gpu_is_an_error(tmp_path: Path) -> None:
    found = recipe(tmp_path, "command: run\nknobs: {dp: [1]}\ngpus: dp / 2\n")
    with pytest.raises(EmuGpuError, match=r"gpus: must be a whole number, and is 0\.5 with dp 1"):
        found.gpu_count(next(found.configurations()))
