"""How near a search comes to the best of a recipe's whole grid with a tenth of its evaluations: examples/search-gpt.

The grid is evaluated once, which takes many minutes:

    cd examples/search-gpt && emugpu search recipe.yaml --all --out ../../out/search-gpt

Searches with several seeds are then answered from its `evaluations.jsonl`. Their best is compared with the grid's, and so is
the recipe's baseline, which Megatron-DeepSpeed publishes for this model.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from emugpu.search.evaluation import Outcome, State
from emugpu.search.journal import SearchJournal
from emugpu.search.optimiser import Evaluated, Key, Search, key_of, objective_of
from emugpu.search.recipe import Configuration, Recipe, read_recipe, shown

EXAMPLE = Path(__file__).parents[2] / "examples" / "search-gpt"
EVALUATIONS = Path("out/search-gpt/evaluations.jsonl")
NEAR = 0.02


def main(argv: Sequence[str]) -> int:
    """Prints the table; 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=EXAMPLE / "recipe.yaml", help="default: %(default)s")
    parser.add_argument(
        "--evaluations", type=Path, default=EVALUATIONS, help="of `emugpu search --all` (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="searches (default: 20)")
    parser.add_argument("--quick", action="store_true", help="has no effect: it takes seconds")
    options, _ = parser.parse_known_args(argv)
    if not options.evaluations.is_file():
        print(f"left out: there is no {options.evaluations}; `emugpu search {options.recipe} --all` writes it")
        return 0
    recipe = read_recipe(options.recipe)
    answers = Answers(recipe, SearchJournal(options.evaluations, recipe).read())
    _print_grid(recipe, answers)
    _print_searches(recipe, answers, options.seeds)
    return 0


class Answers:
    """What a grid's configurations take. One that isn't known has failed, or needn't be evaluated; a search gets the former."""

    def __init__(self, recipe: Recipe, known: Sequence[Evaluated]) -> None:
        self.known: Mapping[Key, Evaluated] = {key_of(one.configuration): one for one in known}
        self.ranked = sorted(
            (value, key)
            for key, one in self.known.items()
            if recipe.allows(one.configuration) and (value := objective_of(recipe, one.outcome)) is not None
        )

    def __call__(self, configuration: Configuration) -> Outcome:
        one = self.known.get(key_of(configuration))
        return one.outcome if one else Outcome(State.FAILED, "isn't among the evaluations")


def _print_grid(recipe: Recipe, answers: Answers) -> None:
    allowed = list(recipe.configurations())
    states = Counter(answers(one).state.value for one in allowed)
    best_value = answers.ranked[0][0]
    near = sum(value <= best_value * (1 + NEAR) for value, _ in answers.ranked)
    print(
        f"{len(allowed)} configurations: {', '.join(f'{count} {state}' for state, count in states.items())}; "
        f"{near} within {NEAR:.0%} of the best"
    )
    print(f"{'':24}{'step s':>8}{'sample ms':>11}{'cost of 1M':>12}{'memory GiB':>12}{'':>8}  configuration")
    _print_row("best", answers.known[answers.ranked[0][1]], best_value, recipe)
    _print_row("worst", answers.known[answers.ranked[-1][1]], best_value, recipe)
    if recipe.baseline is not None and key_of(recipe.baseline) in answers.known:
        _print_row("baseline", answers.known[key_of(recipe.baseline)], best_value, recipe)


def _print_row(name: str, one: Evaluated, best_value: float, recipe: Recipe) -> None:
    outcome = one.outcome
    value = objective_of(recipe, outcome)
    cost = "-" if outcome.sample_cost is None else f"{outcome.sample_cost * 1e6:.2f}"
    more = f"{outcome.state.value:>8}" if value is None else f"{value / best_value - 1:+8.1%}"
    print(
        f"{name:24}{outcome.step_s or 0:8.3f}{(outcome.sample_s or 0) * 1e3:11.3f}{cost:>12}"
        f"{(outcome.memory_bytes or 0) / 2**30:12.1f}{more}  {shown(one.configuration)}"
    )


def _print_searches(recipe: Recipe, answers: Answers, seeds: int) -> None:
    best_value = answers.ranked[0][0]
    budget = sum(1 for _ in recipe.configurations()) // 10
    above = []
    print(f"searches with {budget} evaluations\n{'seed':>4}{'best above the grid':>21}  configuration")
    for seed in range(seeds):
        search = Search(recipe, seed=seed)
        search.run(answers, budget)
        found = search.best()[0]
        value = objective_of(recipe, found.outcome)
        assert value is not None
        above.append(value / best_value - 1)
        print(f"{seed:4}{above[-1]:+21.2%}  {shown(found.configuration)}")
    print(f"{sum(one <= NEAR for one in above)} of {seeds} within {NEAR:.0%}; the worst {max(above):+.2%}")
