"""examples/search-gpt as it stands: its recipe fits its program, and the README counts what it has."""

from __future__ import annotations

import re
from pathlib import Path

from emugpu.search.recipe import Configuration, Recipe, read_recipe

EXAMPLE = Path(__file__).parents[3] / "examples" / "search-gpt"


def recipe() -> Recipe:
    return read_recipe(EXAMPLE / "recipe.yaml")


def values(configuration: Configuration, name: str) -> int:
    return int(recipe().values(configuration)[name])


def test_each_option_of_the_command_is_one_of_the_program() -> None:
    program = (EXAMPLE / "train.py").read_text(encoding="utf-8")
    known = set(re.findall(r'\("([a-z-]+)", \d+\)', program)) | set(re.findall(r'"--([a-z]+)"', program))
    options = {word for one in recipe().configurations() for word in recipe().words(one) if word.startswith("--")}
    assert options
    assert {word.removeprefix("--") for word in options} <= known


def test_all_configurations_train_the_same_batch_on_the_same_gpus() -> None:
    for one in recipe().configurations():
        microbatches, traced = recipe().microbatch_counts(one)
        assert microbatches * values(one, "dp") * values(one, "micro_batch") == 512
        assert traced == microbatches or traced == 2 * values(one, "pp"), "enough to fill the pipeline"
        assert values(one, "dp") * values(one, "tp") * values(one, "pp") == recipe().gpu_count(one) == 32
        assert one["chunks"] == 1 or traced % values(one, "pp") == 0, "the interleaved schedule has whole rounds"


def test_the_baseline_is_in_the_grid() -> None:
    assert recipe().baseline in list(recipe().configurations())


def test_the_readme_counts_what_the_recipe_has() -> None:
    readme = Path(EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"{sum(1 for _ in recipe().configurations())} configurations" in readme
