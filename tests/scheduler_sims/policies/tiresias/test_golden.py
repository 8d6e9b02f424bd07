"""Tiresias' policies against its own simulator, job by job.

The rules of that simulator (SymbioticLab/Tiresias at 959f9b0, Apache-2.0; Gu et al., NSDI 2019) are written down once more in
`Original` below, from their definition: GPUs are only counted, a plan is made from the empty cluster at each event. Random traces
compare it with the policies in a simulated run. With EMUGPU_SCHEDULER_DATA=DIR the per-job files of runs of the original
in DIR/tiresias are compared as well; DIR/tiresias/yarn-gput1000.csv, if it is there, has the service of earlier jobs for the
Gittins index.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, field
from math import floor, inf
from pathlib import Path
from random import Random

import pytest

from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.policies.tiresias.gittins import Table
from scheduler_sims.testing import Job, Node

LIMITS = (3250, 7200)


@dataclass
class One:
    """A job of the original's simulator, in whole seconds or hundredths of them."""

    number: int
    gpus: int
    submit_s: int
    duration_s: int
    ran_s: int = 0
    counted_s: int = 0
    waited_s: int = 0
    queue: int = 0
    runs: bool = False
    end_s: int = -1


@dataclass
class Original:
    """Plays the jobs by one of the policies. `unit`: how many units of time are a second; `late` needs 1."""

    jobs: list[One]
    gpus: int
    policy: str
    promote: int = 0
    late: bool = False
    table: Table | None = None
    unit: int = 1
    present: list[One] = field(default_factory=list)
    queues: list[list[One]] = field(default_factory=lambda: [[], [], []])

    def run(self) -> list[int]:
        coming, now_s = sorted(self.jobs, key=lambda job: job.submit_s), 0
        jump_s: float = inf
        while coming or self.present:
            ends = [now_s + job.duration_s - job.ran_s for job in self.present if job.runs]
            next_s = int(min([*ends, *(job.submit_s for job in coming[:1]), jump_s]))
            self.credit(next_s, next_s - now_s)
            now_s = next_s
            while coming and coming[0].submit_s == now_s:
                self.present.append(coming.pop(0))
                self.queues[0].append(self.present[-1])
            if self.policy in ("2d", "1d", "gittins"):
                self.move()
            self.choose()
            jump_s = self.jump(now_s) if self.policy in ("2d", "1d", "gittins") else inf
        return [job.end_s for job in self.jobs]

    def credit(self, now_s: int, passed_s: int) -> None:
        for job in list(self.present):
            if job.runs:
                job.ran_s += passed_s
                job.counted_s += passed_s
                if job.ran_s == job.duration_s:
                    job.end_s = now_s
                    self.present.remove(job)
                    self.queues[job.queue].remove(job)
            elif job.counted_s:
                job.waited_s += passed_s

    def service(self, job: One) -> int:
        return job.counted_s * (1 if self.policy == "1d" else job.gpus)

    def move(self) -> None:
        for job in self.present:
            if job.runs:
                while job.queue < 2 and self.service(job) >= LIMITS[job.queue] * self.unit:
                    self.to(job, job.queue + 1)
                    if self.late:
                        break
            elif self.promote and job.queue and job.counted_s and job.waited_s >= job.counted_s * self.promote:
                job.counted_s = job.waited_s = 0
                self.to(job, 0)

    def to(self, job: One, queue: int) -> None:
        self.queues[job.queue].remove(job)
        self.queues[queue].append(job)
        job.queue = queue

    def choose(self) -> None:
        if self.policy == "srtf":
            self.present.sort(key=lambda job: job.duration_s - job.ran_s)
        elif self.policy == "srsf":
            self.present.sort(key=lambda job: job.gpus * (job.duration_s - job.ran_s))
        elif self.policy == "smallest":
            self.present.sort(key=lambda job: job.gpus)
        elif self.policy == "gittins" and self.table:
            for queue in self.queues:
                queue.sort(key=lambda job: (-self.table.index(self.service(job)), job.submit_s))  # type: ignore[union-attr]
        stays = self.policy in ("fifo", "fjf")
        queued = self.policy in ("2d", "1d", "gittins")
        order = [job for queue in self.queues for job in queue] if queued else self.present
        free = self.gpus - (sum(job.gpus for job in order if job.runs) if stays else 0)
        for job in order:
            if stays and job.runs:
                continue
            if self.policy == "fifo" and job.gpus > free:
                break
            job.runs = job.gpus <= free
            free -= job.gpus if job.runs else 0
        for queue in self.queues:
            queue.sort(key=lambda job: not job.runs)

    def jump(self, now_s: int) -> float:
        times: list[float] = []
        for job in self.present:
            if job.runs and job.queue < 2:
                gpus = 1 if self.policy == "1d" else job.gpus
                limit = LIMITS[job.queue] * self.unit
                times.append(
                    now_s + (floor((limit - job.counted_s) / gpus) if self.late else limit / gpus - job.counted_s)
                )
            elif self.promote and not job.runs and job.queue and job.counted_s:
                times.append(now_s + self.promote * job.counted_s - job.waited_s)
        return min((time for time in times if time > now_s), default=inf)


POLICIES = {
    "fifo": ("fifo", "fifo"),
    "fjf": ("fifo:backfill=any", "fjf"),
    "sjf": ("smallest-first", "smallest"),
    "shortest": ("srtf", "srtf"),
    "shortest-gpu": ("srsf", "srsf"),
    "dlas": ("las-1d", "1d"),
    "dlas-gpu": ("tiresias:fidelity=as_coded", "2d"),
    "dlas-gpu-2": ("tiresias:promote=2,fidelity=as_coded", "2d"),
}


def simulated(simulate, text: str, jobs: list[One], gpus: int, unit: int = 1) -> list[float]:
    described = [
        Job(str(job.number), gpu_s=job.duration_s / unit, gpus=job.gpus, cpus=0, submit_s=job.submit_s / unit)
        for job in jobs
    ]
    run = simulate(resolve_policy(text)[1], [Node("all", gpus=gpus)], described)
    return [run.records[str(job.number)].finish_s for job in jobs]


def random_jobs(seed: int, unit: int, number: int = 60) -> list[One]:
    """An overload with queue jumps: 1 to 8 GPUs, 10 to 6,000 s."""
    random = Random(f"{seed}/tiresias")
    jobs, at_s = [], 0
    for index in range(number):
        at_s += random.randint(0, 400 * unit)
        run_s = round(10 * unit * 600 ** random.random())
        jobs.append(One(index, random.choice([1, 1, 1, 2, 4, 8]), at_s, run_s))
    return jobs


@pytest.mark.parametrize("text", ["tiresias", "tiresias:promote=2", *(text for text, _ in POLICIES.values())])
@pytest.mark.parametrize("seed", range(4))
def test_random_traces_end_as_by_the_originals_rules(simulate, text, seed):
    """In hundredths of a second, since the original's order of equals is an accident of its lists; `late` needs whole ones."""
    late, name = "as_coded" in text, dict(POLICIES.values()).get(text, "2d")
    unit, promote = 1 if late else 100, 2 * ("promote" in text)
    if late and promote:
        pytest.skip("promotions fall on the ends of other jobs, to the second")
    original = Original(random_jobs(seed, unit), 8, name, promote=promote, late=late, unit=unit)
    expected = [end / unit for end in original.run()]
    assert max(expected) > 10_000
    assert simulated(simulate, text, random_jobs(seed, unit), 8, unit) == pytest.approx(expected, abs=0.01)


def test_jobs_go_in_order_of_their_index_within_a_queue(simulate, tmp_path):
    (tmp_path / "history.csv").write_text("duration\n" + "\n".join(str(30 + number**2) for number in range(200)))
    table = Table.of([30.0 + number**2 for number in range(200)])
    expected = Original(random_jobs(1, 1), 8, "gittins", late=True, table=table).run()
    text = f"gittins:fidelity=as_coded,history={tmp_path / 'history.csv'}"
    assert simulated(simulate, text, random_jobs(1, 1), 8) == pytest.approx(expected, abs=0.01)


DATA = Path(os.environ.get("EMUGPU_SCHEDULER_DATA", "")) / "tiresias"
TRACES = [("t1", "n1g4", 4), ("t2", "n1g4", 4), ("t3", "n1g4", 4), ("60job", "n4g4", 16), ("60job", "n32g4", 128)]
TRACES += [("syn500", "n16g4", 64)]


@pytest.mark.skipif(not os.environ.get("EMUGPU_SCHEDULER_DATA"), reason="EMUGPU_SCHEDULER_DATA names no folder")
@pytest.mark.parametrize("flag", [*POLICIES, "dlas-gpu-gittins"])
@pytest.mark.parametrize(("trace", "cluster", "gpus"), TRACES)
def test_the_files_of_the_originals_simulator_job_by_job(simulate, flag, trace, cluster, gpus):
    path = DATA / f"jobs_{trace}_{cluster}_{flag}_count.csv"
    if not path.exists():
        pytest.skip(f"there is no {path.name}")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    history = DATA / "yarn-gput1000.csv"
    text = POLICIES[flag][0] if flag in POLICIES else f"gittins:fidelity=as_coded,history={history}"
    if flag not in POLICIES and not history.exists():
        pytest.skip("there is no yarn-gput1000.csv")
    jobs = [One(int(r["job_id"]), int(r["num_gpu"]), int(r["submit_s"]), int(r["duration_s"])) for r in rows]
    assert simulated(simulate, text, jobs, gpus) == pytest.approx([float(row["end_s"]) for row in rows], abs=0.01)
