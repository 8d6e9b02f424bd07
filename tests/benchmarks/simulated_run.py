"""One simulation in a process of its own, for `simulator_speed`: CPU time of its parts and peak memory, as a line of JSON.

python -m tests.benchmarks.simulated_run WORKLOAD CLUSTER POLICY OUT
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Decision, Listeners
from scheduler_sims.policies.resolve import resolve_policy


class CountingCluster(SimulatedCluster):
    """Counts the ends of runs that it hands out."""

    ends = 0

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        self.ends += sum(event.what is not Happening.STARTED for event in events)
        return events


def main(argv: list[str]) -> int:
    """Run it; always 0."""
    workload, cluster, policy, out = argv
    began = time.process_time()
    experiment = Experiment.load(Path(workload), Path(cluster))
    loaded = time.process_time()
    simulated, wakes = CountingCluster(experiment.truth, experiment.spec.costs), 0

    def decided(decision: Decision) -> None:
        nonlocal wakes
        wakes += "wake" in decision.triggers

    loop = SchedulerLoop(
        simulated,
        experiment.spec,
        resolve_policy(policy)[1],
        experiment.estimates,
        experiment.workload.jobs,
        listeners=Listeners(decided=decided),
    )
    loop.run()
    looped = time.process_time()
    jobs = len(experiment.workload.jobs)
    answer = {
        "load_s": loaded - began,
        "loop_s": looped - loaded,
        "arrivals": jobs,
        "finishes": loop.books.ended,
        "stops": simulated.ends - loop.books.ended,
        "wakes": wakes,
        "plans": loop.decisions,
        "mean_jct_s": sum(record.jct_s for record in loop.books.records()) / jobs,
        "loop_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    del loop, simulated
    began = time.process_time()
    _whole_run(experiment, policy, Path(out))
    answer["whole_s"] = time.process_time() - began
    answer["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(answer))
    return 0


def _whole_run(experiment: Experiment, policy: str, out: Path) -> None:
    """What `emugpu simulate` does after reading its inputs: the run, and all files."""
    from emugpu.comparison.runs import meta_of, write_files

    arguments = argparse.Namespace(workload="workload.csv", cluster="cluster.yaml", stretch=1.0, out=out)
    out.mkdir(parents=True, exist_ok=True)
    run = experiment.simulate(policy)
    write_files(arguments, [run], meta_of(arguments, experiment, "simulated only"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
