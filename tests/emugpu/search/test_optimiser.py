"""Which configurations a search evaluates, on an analytic model of a GPT on 32 GPUs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from emugpu.search.evaluation import Outcome, State
from emugpu.search.optimiser import Evaluated, Search, front
from emugpu.search.recipe import Configuration, read_recipe
from tests.support.search_models import gpt, gpt_recipe


@pytest.mark.parametrize("seed", range(2))
def test_a_tenth_of_the_grid_comes_within_two_percent_of_its_best(tmp_path: Path, seed: int) -> None:
    recipe = gpt_recipe(tmp_path)
    grid = [gpt(one).sample_s for one in recipe.configurations()]
    assert len(grid) > 500
    best = min(value for value in grid if value is not None)
    near = sum(value is not None and value <= 1.02 * best for value in grid)
    assert near < len(grid) / 100, "chance wouldn't find it"
    search = Search(recipe, seed=seed)
    search.run(gpt, len(grid) // 10)
    assert len(search.found) <= len(grid) // 10 + sum(
        one.outcome.state is State.PRUNED for one in search.found.values()
    )
    found = search.best()[0].outcome.sample_s
    assert found is not None
    assert found <= 1.02 * best


def test_all_of_them_are_each_evaluated_once_by_several_workers(tmp_path: Path) -> None:
    recipe = gpt_recipe(tmp_path)
    calls: Counter[str] = Counter()

    def evaluate(configuration: Configuration) -> Outcome:
        calls[str(configuration)] += 1
        return gpt(configuration)

    search, seen = Search(recipe), list[Evaluated]()
    search.run(evaluate, 0, 4, seen.append, all_of_them=True)
    assert set(calls.values()) == {1}
    assert len(seen) == len(search.found) == len(search.allowed)
    pruned = [one for one in search.found.values() if one.outcome.state is State.PRUNED]
    assert len(calls) + len(pruned) == len(search.allowed)
    assert all(gpt(one.configuration).state is State.OUT_OF_MEMORY for one in pruned), "facts that keep the optimum"
    assert pruned


def test_what_is_known_is_not_evaluated_again(tmp_path: Path) -> None:
    recipe = gpt_recipe(tmp_path)
    first = Search(recipe)
    first.run(gpt, 40)
    known = [one for one in first.found.values() if one.outcome.state is not State.PRUNED]
    calls: list[Configuration] = []

    def evaluate(configuration: Configuration) -> Outcome:
        calls.append(configuration)
        return gpt(configuration)

    second = Search(recipe, known)
    second.run(evaluate, 60)
    assert len(calls) == 20
    assert not [one for one in calls if one in [other.configuration for other in known]]
    assert len(second.best()) >= len(first.best())


def test_an_error_of_an_evaluation_ends_the_search(tmp_path: Path) -> None:
    def evaluate(configuration: Configuration) -> Outcome:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        Search(gpt_recipe(tmp_path)).run(evaluate, 10, 2)


def test_true_and_one_are_different_values(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("command: run {a}\nknobs: {a: [true, 1, 'x']}\n", encoding="utf-8")
    search = Search(read_recipe(path))
    search.run(lambda one: Outcome(State.DONE, step_s=1, sample_s=len(str(one["a"]))), 3)
    assert [one.configuration["a"] for one in search.best()][-1] is True
    assert len(search.found) == 3


def test_the_front_has_what_nothing_beats_in_time_and_cost(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("command: run {a}\nknobs: {a: [0, 1, 2, 3, 4]}\n", encoding="utf-8")
    recipe = read_recipe(path)
    figures = [(1.0, 9.0), (2.0, 5.0), (2.5, 5.0), (3.0, 6.0), (4.0, 1.0)]

    def evaluate(one: Configuration) -> Outcome:
        time, cost = figures[int(one["a"])]
        return Outcome(State.DONE, step_s=time, sample_s=time, sample_cost=cost)

    search = Search(recipe)
    search.run(evaluate, 5, all_of_them=True)
    assert [one.configuration["a"] for one in front(recipe, search.found)] == [0, 1, 4]
