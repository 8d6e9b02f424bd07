"""Speed of the policies that optimise: Gavel's rounds and linear programs, Pollux's search, Sia's integer program.

Gavel's rounds follow each other as in a run, with a job that ends and a new one every third round, so that the program is solved
again at each reset. Peers, in the same run: the same rounds with every program solved from scratch, SciPy's `linprog` for one
program, and the isolated division without any. CPU time, so that other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
from scipy.optimize import linprog

from scheduler_sims.interface.rounds import Round
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.gavel import Gavel
from scheduler_sims.policies.gavel.objectives import max_min
from scheduler_sims.policies.gavel.problem import Problem
from scheduler_sims.policies.goodput import genetic, programs
from scheduler_sims.testing import Job, Node, cluster_view, places

JOBS, ROUNDS = 96, 60
TYPES = ("V100", "P100", "K80")
PUBLISHED = "67-190 rounds/s (Gavel's simulator), 10-60 s (Pollux's rounds), more than 5 s (Sia's)"


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks optimising_policies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    options, _ = parser.parse_known_args(argv)  # other benchmarks have options of their own
    repeats = 2 if options.quick else 5
    seen = {name: rounds_of(JOBS, name) for name in ("max-min", "isolated")}
    each = {name: ROUNDS / fastest_s(lambda n=name: run(seen[n], n), repeats) for name in seen}
    cold = ROUNDS / fastest_s(lambda: run(seen["max-min"], "max-min", forget=True), repeats)
    print(f"{'what':<52}{'CPU time':>12}")
    print(f"{'max-min, rounds/s at 96 jobs':<52}{each['max-min']:>12,.0f}")
    print(f"{'  every program from scratch, rounds/s':<52}{cold:>12,.0f}{each['max-min'] / cold:>8.2f} x")
    print(
        f"{'  without a program (isolated), rounds/s':<52}{each['isolated']:>12,.0f}{each['max-min'] / each['isolated']:>8.2f} x"
    )
    problem = problem_of(JOBS)
    memory = max_min(problem, None)[1]
    warm, scratch = (fastest_s(lambda m=m: max_min(problem, m), repeats) for m in (memory, None))
    peer = fastest_s(lambda: by_scipy(problem), repeats)
    print(f"{'one program of 96 jobs, from its own basis, ms':<52}{warm * 1e3:>12.2f}")
    print(f"{'  from scratch, ms':<52}{scratch * 1e3:>12.2f}{scratch / warm:>8.2f} x")
    print(f"{'  scipy.optimize.linprog, ms':<52}{peer * 1e3:>12.2f}{peer / warm:>8.2f} x")
    search = search_of(30, 16, 4)
    found = fastest_s(lambda: genetic.search(search, none_of(search), np.random.default_rng(0), 100, 100), repeats)
    print(f"{'Pollux, 100 plans x 100 generations, 30 jobs, ms':<52}{found * 1e3:>12.0f}")
    choices, capacity = choices_of(160)
    solved = fastest_s(lambda: programs.choose(choices, 160, capacity, 1.1), repeats)
    print(f"{'Sia, integer program of 160 jobs, ms':<52}{solved * 1e3:>12.0f}")
    print(f"originals, of the reference: {PUBLISHED}")
    return 0


def fastest_s(work: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def rounds_of(jobs: int, objective: str) -> list[ClusterView]:
    """What a policy sees in consecutive rounds of a run, its state included; a plan depends on nothing else."""
    draw = Random("optimising_policies/jobs")
    nodes = [Node(f"{kind}-{n}", gpus=4, gpu_type=kind, cpus=1000) for kind in TYPES for n in range(3)]
    described = [
        Job(f"j{n}", {kind: draw.uniform(5e3, 5e4) for kind in TYPES}, gpus=draw.choice([1, 1, 1, 2, 4]), row=n)
        for n in range(jobs + ROUNDS // 3)
    ]
    policy, views, state, where = Gavel(objective), list[ClusterView](), None, dict[str, str]()
    for number in range(ROUNDS):
        now_s = number * 360.0
        here = [replace(job, on=where.get(job.job_id, "")) for job in described[number // 3 : number // 3 + jobs]]
        view = cluster_view(nodes, here, now_s=now_s)
        views.append(replace(view, round=Round(number, now_s, now_s + 360), state=state))
        plan = policy.plan(views[-1])
        where, state = places(view, plan), plan.state
    return views


def run(views: list[ClusterView], objective: str, *, forget: bool = False) -> None:
    """The plans of all rounds. `forget`: the basis of the last program."""
    policy = Gavel(objective)
    for view in views:
        forgetful = forget and view.state is not None
        policy.plan(replace(view, state=replace(view.state, solver=None)) if forgetful else view)


def problem_of(jobs: int) -> Problem:
    draw = np.random.default_rng(0)
    return Problem(
        tuple(f"j{n}" for n in range(jobs)),
        TYPES,
        draw.uniform(1, 10, (jobs, 3)),
        draw.choice([1.0, 1.0, 1.0, 2.0, 4.0], jobs),
        np.full(3, 12.0),
        np.ones(jobs),
        draw.uniform(1e3, 1e5, jobs),
        np.zeros(jobs),
        np.ones(3),
    )


def by_scipy(problem: Problem) -> float:
    """The same program for SciPy's interface of HiGHS."""
    m, n = problem.rates.shape
    gain = problem.rates * (problem.gpus / problem.equal_rates)[:, None]
    levels, times, types = np.zeros((m, m * n + 1)), np.zeros((m, m * n + 1)), np.zeros((n, m * n + 1))
    for job in range(m):
        levels[job, job * n : (job + 1) * n], levels[job, -1] = -gain[job], 1
        times[job, job * n : (job + 1) * n] = 1
        types[:, job * n : (job + 1) * n] = np.eye(n) * problem.gpus[job]
    cost = np.zeros(m * n + 1)
    cost[-1] = -1
    limits = np.concatenate([np.zeros(m), np.ones(m), problem.capacity])
    return float(linprog(cost, A_ub=np.concatenate([levels, times, types]), b_ub=limits, method="highs-ds").fun)


def search_of(jobs: int, nodes: int, gpus: int) -> genetic.Search:
    """Jobs whose speed-up falls off with the number of GPUs, and more on several nodes."""
    draw = np.random.default_rng(0)
    power = draw.uniform(0.4, 0.95, jobs)
    numbers, places = np.arange(65), np.arange(nodes + 1)
    speedups = numbers[None, None, :] ** power[:, None, None] * np.where(places > 1, 0.8, 1.0)[None, :, None]
    return genetic.Search(
        speedups=speedups / (nodes * gpus / jobs),
        capacity=np.full(nodes, gpus),
        present=np.zeros((jobs, nodes), dtype=np.int16),
        most_gpus=draw.choice([2, 4, 8, 16, 64], jobs),
        most_nodes=np.full(jobs, nodes),
        restart=draw.uniform(0.5, 1, jobs),
        scale=1 / gpus,
    )


def none_of(search: genetic.Search) -> np.ndarray:
    return np.zeros((0, *search.present.shape), dtype=np.int16)


def choices_of(jobs: int) -> tuple[list[programs.Choice], list[int]]:
    """Sia's 64 GPUs of three types, with the configurations of jobs that scale unequally."""
    draw = np.random.default_rng(0)
    counts, choices = ([1, 2, 4, 8, 12, 16, 20, 24], [1, 2, 4, 8, 16, 24], [1, 2, 4, 8, 16]), []
    for job in range(jobs):
        power, speeds = draw.uniform(0.4, 0.95), draw.uniform(1, 4, 3)
        for kind, numbers in enumerate(counts):
            choices += [
                programs.Choice(job, round(float((gpus**power * speeds[kind]) ** -0.5), 2), kind, gpus)
                for gpus in numbers
            ]
    return choices, [24, 24, 16]
