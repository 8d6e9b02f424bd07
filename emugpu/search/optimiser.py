"""Chooses which configurations of a recipe are evaluated: all of them; or few that are unlike each other, those of which the
surrogate expects most, and where the budget allows more, those that Optuna's tree-structured Parzen estimator (TPE; Bergstra et
al., NeurIPS 2011) thinks best, and then the neighbours of the best ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import optuna

from emugpu.evaluations.parallel import evaluate_in_parallel
from emugpu.search.evaluation import Evaluate, Outcome, State
from emugpu.search.recipe import COST, GPU_TYPE, Configuration, Recipe
from emugpu.search.surrogate import Observation, Surrogate
from emulator_runtime.profiles.catalogue import gpu_spec

Key = tuple[object, ...]
Proposal = tuple[Configuration, "optuna.trial.Trial | None"]
"""What is to be evaluated, and the trial of the sampler that proposed it."""

_UNLIKE = 5
"""So many are evaluated before the surrogate expects anything."""
_EXPECTED = 60
"""So many are the surrogate's; what it knows is then enough for TPE."""
_CANDIDATES = 2000
"""The surrogate compares so many, by chance where there are more."""
_NEIGHBOURS = 0.4
"""The part of the budget for the best one's neighbours, unless all of them are known before."""
_ASKS = 16
"""So often the sampler may propose what isn't allowed or known already; then a random configuration is taken."""
_GOOD = 5
"""The neighbours of so many are tried."""
_WORST = 1e30


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A configuration and what it takes."""

    configuration: Configuration
    outcome: Outcome


def key_of(configuration: Configuration) -> Key:
    """Equal for equal configurations only: 1 and true differ."""
    return tuple((name, type(value).__name__, value) for name, value in configuration.items())


def objective_of(recipe: Recipe, outcome: Outcome) -> float | None:
    """What is to be small; None: it has no such value."""
    return outcome.sample_cost if recipe.objective == COST else outcome.sample_s


class Search:
    """One search. `known`: what an earlier run found; it isn't evaluated again."""

    def __init__(self, recipe: Recipe, known: Sequence[Evaluated] = (), *, seed: int = 0) -> None:
        """Raises InputError for constraints that can't be worked out, and for a configuration that can't be evaluated."""
        self.recipe = recipe
        self.allowed = {key_of(one): one for one in recipe.configurations()}
        recipe.check(self.allowed.values())
        self.found: dict[Key, Evaluated] = {}
        self._planned: set[Key] = set()
        self._random = Random(seed)
        self._surrogate = Surrogate(recipe.knobs, self._random)
        self._room = {str(name): gpu_spec(str(name), "gpu_types").memory_bytes for name in recipe.knobs[GPU_TYPE]}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=10)
        self._study = optuna.create_study(sampler=sampler)
        self._distributions = {name: _distribution(values) for name, values in recipe.knobs.items() if len(values) > 1}
        for one in known:
            if (key := key_of(one.configuration)) in self.allowed:
                self._planned.add(key)
                self._note(one, None)

    def run(
        self,
        evaluate: Evaluate,
        budget: int,
        workers: int = 1,
        progress: Callable[[Evaluated], None] = lambda one: None,
        *,
        all_of_them: bool = False,
    ) -> None:
        """Evaluates until `budget` configurations have been, those of an earlier run included, or all. What `evaluate` raises
        ends the search."""
        proposals = self._each() if all_of_them else self._best_first(budget)

        def propose(running: int) -> Proposal | None:
            while all_of_them or self._spent() + running < budget:
                proposal = next(proposals, None)
                if proposal is None:
                    return None
                configuration, trial = proposal
                if not (reason := self._needless(configuration)):
                    return proposal
                self._end(configuration, Outcome(State.PRUNED, reason), trial, progress)
            return None

        with ThreadPoolExecutor(workers) as pool:
            evaluate_in_parallel(
                pool,
                workers,
                propose,
                lambda proposal: evaluate(proposal[0]),
                lambda proposal, outcome: self._end(proposal[0], outcome, proposal[1], progress),
            )

    def best(self) -> list[Evaluated]:
        """Those with a value, the best one first."""
        done = [
            (value, one) for one in self.found.values() if (value := objective_of(self.recipe, one.outcome)) is not None
        ]
        return [one for _, one in sorted(done, key=lambda pair: pair[0])]

    def _spent(self) -> int:
        return sum(one.outcome.state is not State.PRUNED for one in self.found.values())

    def _end(
        self,
        configuration: Configuration,
        outcome: Outcome,
        trial: optuna.trial.Trial | None,
        progress: Callable[[Evaluated], None],
    ) -> None:
        one = Evaluated(configuration, outcome)
        self._note(one, trial)
        progress(one)

    def _note(self, one: Evaluated, trial: optuna.trial.Trial | None) -> None:
        self.found[key_of(one.configuration)] = one
        value = objective_of(self.recipe, one.outcome)
        if trial is not None:
            self._study.tell(trial, _WORST if value is None else value)
        elif self._distributions:
            parameters = {
                name: _parameter(self.recipe.knobs[name], one.configuration[name]) for name in self._distributions
            }
            self._study.add_trial(
                optuna.trial.create_trial(
                    params=parameters, distributions=self._distributions, value=_WORST if value is None else value
                )
            )

    # ---- proposals ----

    def _each(self) -> Iterator[Proposal]:
        for key, configuration in self.allowed.items():
            if key not in self._planned:
                self._planned.add(key)
                yield configuration, None

    def _best_first(self, budget: int) -> Iterator[Proposal]:
        if (baseline := self.recipe.baseline) and (key := key_of(baseline)) not in self._planned:
            self._planned.add(key)
            yield baseline, None
        while len(self._planned) < len(self.allowed):
            if self._spent() < _EXPECTED and (proposal := self._expected()):
                yield proposal
                continue
            proposal = self._neighbour() if self._spent() >= (1 - _NEIGHBOURS) * budget else None
            yield proposal or self._sampled() or self._any()

    def _expected(self) -> tuple[Configuration, None] | None:
        """One of those that aren't planned and may fit: unlike all others at first, then the surrogate's. None: there is none."""
        keys = [key for key in self.allowed if key not in self._planned]
        if len(keys) > _CANDIDATES:
            keys = self._random.sample(keys, _CANDIDATES)
        candidates = [one for key in keys if not self._needless(one := self.allowed[key])]
        if not candidates:
            return None
        known = [one for one in self.found.values() if one.outcome.state is not State.PRUNED]
        if len(known) < _UNLIKE or not self.best():
            chosen = self._surrogate.unlike(
                candidates, [self.allowed[key] for key in self.allowed if key in self._planned]
            )
        else:
            room = [self._room[str(one[GPU_TYPE])] for one in candidates]
            under_way = [self.allowed[key] for key in self.allowed if key in self._planned and key not in self.found]
            chosen = self._surrogate.best(candidates, [self._observation(one) for one in known], room, under_way)
        self._planned.add(key_of(chosen))
        return chosen, None

    def _observation(self, one: Evaluated) -> Observation:
        outcome = one.outcome
        fits = outcome.state is not State.OUT_OF_MEMORY
        return Observation(one.configuration, objective_of(self.recipe, outcome), outcome.memory_bytes, fits)

    def _any(self) -> tuple[Configuration, None]:
        key = self._random.choice([key for key in self.allowed if key not in self._planned])
        self._planned.add(key)
        return self.allowed[key], None

    def _sampled(self) -> tuple[Configuration, optuna.trial.Trial] | None:
        for _ in range(_ASKS):
            trial = self._study.ask(self._distributions)
            configuration = {
                name: values[0] if name not in self._distributions else _value(values, trial.params[name])
                for name, values in self.recipe.knobs.items()
            }
            key = key_of(configuration)
            if key in self.allowed and key not in self._planned:
                self._planned.add(key)
                return configuration, trial
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return None

    def _neighbour(self) -> tuple[Configuration, None] | None:
        """One that isn't known and differs from a good one by one step, or by two where constraints tie knobs."""
        unknown = [one for key, one in self.allowed.items() if key not in self._planned]
        for distance in (1, 2):
            for good in self.best()[:_GOOD]:
                near = next((one for one in unknown if self._distance(good.configuration, one) == distance), None)
                if near is not None:
                    self._planned.add(key_of(near))
                    return near, None
        return None

    def _distance(self, one: Configuration, other: Configuration) -> int:
        """Steps over all knobs; another text counts as one."""
        steps = 0
        for name, values in self.recipe.knobs.items():
            if one[name] != other[name]:
                steps += abs(values.index(one[name]) - values.index(other[name])) if _numeric(values) else 1
        return steps

    def _needless(self, configuration: Configuration) -> str:
        """Why it needn't be evaluated: a smaller one didn't fit."""
        rising = self.recipe.memory_rises_with
        for one in self.found.values() if rising else ():
            if one.outcome.state is State.OUT_OF_MEMORY and _needs_no_less(one.configuration, configuration, rising):
                less = ", ".join(f"{name} {one.configuration[name]}" for name in sorted(rising))
                return f"out of memory with {less} already"
        return ""


def _needs_no_less(smaller: Configuration, configuration: Configuration, rising: frozenset[str]) -> bool:
    """Whether `configuration` differs from `smaller` only in larger values of rising knobs."""
    for name, value in configuration.items():
        other = smaller[name]
        if name in rising:
            assert not isinstance(value, str) and not isinstance(other, str)  # `read_recipe` says so
            if value < other:
                return False
        elif value != other:
            return False
    return True


def _numeric(values: Sequence[object]) -> bool:
    return not any(isinstance(value, str | bool) for value in values)


def _distribution(values: Sequence[object]) -> optuna.distributions.BaseDistribution:
    """Numbers by their place among the values, so that neighbours are alike whatever their distances."""
    if _numeric(values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution([str(place) for place in range(len(values))])


def _parameter(values: Sequence[object], value: object) -> int | str:
    place = [key_of({"": one}) for one in values].index(key_of({"": value}))  # type: ignore[dict-item]
    return place if _numeric(values) else str(place)


def _value(values: Sequence[bool | int | float | str], parameter: int | str) -> bool | int | float | str:
    return values[int(parameter)]


def front(recipe: Recipe, found: Mapping[Key, Evaluated]) -> list[Evaluated]:
    """The Pareto front of time and cost for a sample, the fastest first. Without prices it has the fastest one only."""
    done = [one for one in found.values() if one.outcome.sample_s is not None]
    done.sort(key=lambda one: (one.outcome.sample_s or 0.0, one.outcome.sample_cost or 0.0))
    kept: list[Evaluated] = []
    for one in done:
        cost = one.outcome.sample_cost
        if not kept or (cost is not None and cost < (kept[-1].outcome.sample_cost or 0.0)):
            kept.append(one)
    return kept
