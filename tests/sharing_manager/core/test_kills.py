"""A manager that is killed 50 times while jobs use its devices, between any two of its actions or in the middle of a store.

Clients do as emulator_runtime/ipc/client.py does: they attach again and repeat the demands that they have no answer to. Whatever
was decided and not read is lost with the manager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random

import pytest

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.sharing.demands import Demand, Piece, Terms
from emulator_runtime.sharing.modes import MODES
from emulator_runtime.sharing.processor_sharing import LEAD_NS
from sharing_manager.core.half_served import CUT_NS
from sharing_manager.core.shared_time import Decision
from sharing_manager.grants.session import Session
from tests.sharing_manager.conftest import Node

MS = 1_000_000
UUIDS = [device_uuid("n1", index) for index in range(3)]
KILLS = 50
JOBS = {"a": ([0], 1, None), "b": ([0, 1], 1, [1, 0]), "c": ([0], 3, [0]), "d": ([1, 2], 1, [0])}
"""The devices of each job, the number of its processes, and which of the devices each of them names."""
JOBS_ALONE = {"a": ([0], 3, None), "b": ([1, 2], 2, [0, 1])}
JOBS_WITHOUT_PAUSE = {"a": ([0], 1, None), "b": ([0, 1], 1, [0]), "c": ([0], 2, [0])}
WITHOUT_MEMORY = ["exclusive", "fifo", "priority", "srtf"]
"""Modes whose decisions depend on the demands that wait only: a kill changes none of them."""
ALL_AT_ONCE = ["mps", "time-slicing"]


class KillError(BaseException):
    """The manager ends here."""


class Fuse:
    """Kills the manager after so many bytes of one of its next stores."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.stores: int | None = None

    def burn(self, size: int) -> int | None:
        """How many bytes of a store are written if the manager is killed during it."""
        if self.stores is None:
            return None
        self.stores -= 1
        if self.stores >= 0:
            return None
        self.stores = None
        return self._random.randint(0, size)


class Memory:
    """The mapped page of a lease file."""

    def __init__(self, page, fuse: Fuse) -> None:
        self._page, self._fuse = page, fuse

    def __setitem__(self, place: slice, data: bytes) -> None:
        written = self._fuse.burn(len(data))
        if written is not None:
            self._page[place.start : place.start + written] = data[:written]
            raise KillError
        self._page[place] = data


@dataclass(eq=False)
class Process:
    """A process with the time of its steps and its pauses between them; `name` is "" for the one that speaks for its job.
    `places`: the devices that it names when it attaches."""

    job: str
    name: str
    uuids: list[str]
    places: list[int] | None
    durations: list[int]
    pauses: list[int]
    session: Session | None = None
    step: int = 0
    ready_ns: int = 0
    answers: dict[tuple[str, int], Piece] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.step == len(self.durations)

    @property
    def end_ns(self) -> int:
        """When its last step ends, or the one before the step that it demands."""
        return max([0, *(piece.end_ns for piece in self.answers.values())])

    def demands(self) -> Iterator[tuple[str, Demand]]:
        """What it demands and has no answer to."""
        for uuid in self.uuids if not self.ended else ():
            if (uuid, self.step) not in self.answers:
                work_ns, left_ns = self.durations[self.step], sum(self.durations[self.step :])
                yield uuid, Demand("", self.step, self.ready_ns, work_ns, remaining_ns=left_ns)

    def take(self, uuid: str, number: int, piece: Piece) -> bool:
        """Read an answer; whether the next step is demanded now. Every answer to a demand is the same."""
        assert self.answers.setdefault((uuid, number), piece) == piece
        assert piece.work_ns == self.durations[number]
        if number != self.step or any((each, number) not in self.answers for each in self.uuids):
            return False
        self.ready_ns = max(self.answers[each, number].end_ns for each in self.uuids) + self.pauses[number]
        self.step += 1
        return True


class World:
    """The jobs of one mode, and the turns in which the manager is killed. The jobs depend on the seed alone: they are the same
    in a world without kills."""

    def __init__(self, node: Node, mode: str, seed: int, kills: Collection[int] = (), *, pauses: bool = True) -> None:
        self.node, self.turns, self._kills = node, 0, kills
        self.killed = self._owed = 0
        self._dies = False
        """Whether the manager is killed at the end of this turn."""
        self._random = Random(f"{mode}/{seed}/kills")
        self._fuse = Fuse(self._random)
        node.clock._now_ns = 0
        jobs = JOBS if MODES[mode].shared else JOBS_ALONE
        self.processes: list[Process] = []
        self.tokens, self.finished = {}, set()
        for row, (job, (devices, number, places)) in enumerate((jobs if pauses else JOBS_WITHOUT_PAUSE).items()):
            uuids = [UUIDS[device] for device in devices]
            used = uuids if places is None else [uuids[place] for place in places]
            milli = 1000 if mode in ALL_AT_ONCE else 200 + 100 * row
            grant = node.manager.grant(job, uuids, 0, [Terms(row, milli=milli, priority=row % 2)] * len(uuids))
            self.tokens[job] = node.token(grant)
            for index in range(number):
                of = Random(f"{mode}/{seed}/{job}/{index}")
                longest = of.choice([5, 50, 300])
                steps = (60 if MODES[mode].shared else 120) // number
                durations = [of.randint(1, longest * MS) for _ in range(steps)]
                waits = [of.choice([0, 0, of.randint(0, 20 * MS)]) if pauses else 0 for _ in range(steps)]
                self.processes.append(Process(job, f"{index}" if number > 1 else "", used, places, durations, waits))
        self._fit()
        self._come_back()

    def run(self) -> None:
        while len(self.finished) < len(self.tokens):
            self.turns += 1
            self._owed += self.turns in self._kills
            try:
                if self._owed and self._fuse.stores is None:
                    self._owed -= 1
                    self._dies = self._random.random() < 0.5
                    self._fuse.stores = None if self._dies else self._random.randint(0, 4)
                self._turn()
                if self._dies:
                    raise KillError
            except KillError:
                self._restart()
        assert self.killed == len(self._kills)

    def _turn(self) -> None:
        """The next thing that happens: decisions, of which the manager may send only some before it is killed, or a job's end."""
        manager, clock = self.node.manager, self.node.clock
        ends = [(self._end_ns(job), job) for job in self.tokens if job not in self.finished and self._done(job)]
        due_ns = manager.next_decision_ns()
        if ends and (due_ns is None or max(min(ends)[0], clock.now_ns()) < due_ns):
            end_ns, job = min(ends)
            clock.advance_to_ns(max(clock.now_ns(), end_ns))
            manager.finish(manager.find(self.tokens[job]), self._steps(job))
            self.finished.add(job)
            return
        assert due_ns is not None, "a demand was lost"
        clock.advance_to_ns(max(clock.now_ns(), due_ns))
        decisions = manager.decide(due_ns)
        sent = self._random.randint(0, len(decisions)) if self._dies else len(decisions)
        for decision in decisions[:sent]:
            self._read(decision)

    def _read(self, decision: Decision) -> None:
        process = next(each for each in self.processes if each.session is decision.session)
        if process.take(decision.uuid, decision.answer.sequence, decision.answer.piece):
            if not process.name:
                self.node.manager.report_steps(process.session, process.step)
            self._demand(process)

    def _demand(self, process: Process) -> None:
        for uuid, demand in process.demands():
            self.node.manager.demand(process.session, uuid, demand)

    def _restart(self) -> None:
        self._dies, self.killed = False, self.killed + 1
        self.node.clock.advance_ns(self._random.choice([0, self._random.randint(0, 30 * MS)]))
        self.node.crash()
        self._fit()
        self._come_back()

    def _fit(self) -> None:
        shared = self.node.manager._shared
        for table in (shared._pieces, shared._half_served._table, self.node.manager._ledger._leases):
            table._memory = Memory(table._memory, self._fuse)

    def _come_back(self) -> None:
        """In any order: nothing is decided before all of them are back."""
        manager = self.node.manager
        for job in self._random.sample(sorted(self.tokens), len(self.tokens)):
            processes = [process for process in self.processes if process.job == job]
            steps = processes[0].step if not processes[0].name else None
            grant = manager.attach(self.tokens[job], job, steps, 0)
            for process in processes if grant.live else ():
                process.session = manager.open_session(grant, process.name, process.places)
                self._demand(process)

    def _done(self, job: str) -> bool:
        return all(process.ended for process in self.processes if process.job == job)

    def _end_ns(self, job: str) -> int:
        return max(process.end_ns for process in self.processes if process.job == job)

    def _steps(self, job: str) -> int:
        return sum(len(process.durations) for process in self.processes if process.job == job)

    def schedule(self) -> dict[tuple[str, str, str, int], Piece]:
        return {
            (each.job, each.name, *key): piece for each in self.processes for key, piece in sorted(each.answers.items())
        }

    def on(self, uuid: str) -> list[Piece]:
        """The pieces of a device, in the order of their starts."""
        pieces = (piece for (_, _, each, _), piece in self.schedule().items() if each == uuid)
        return sorted(pieces, key=lambda piece: (piece.start_ns, piece.end_ns))


@pytest.fixture
def after(make_node):
    """`after(mode, seed)`: the world when all jobs have ended."""
    names = (f"{number}.db" for number in count())

    def after(mode: str, seed: int, kills: Collection[int] = (), *, pauses: bool = True) -> World:
        world = World(make_node(next(names), mode), mode, seed, kills, pauses=pauses)
        world.run()
        return world

    return after


def points_in(world: World, count: int) -> list[int]:
    """So many turns; a kill in a store may come some turns later."""
    return Random(world.turns).sample(range(1, world.turns * 9 // 10), count)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_and_nothing_is_done_twice(after, mode, seed):
    left_alone = after(mode, seed)
    killed = after(mode, seed, points_in(left_alone, KILLS))
    assert killed.schedule().keys() == left_alone.schedule().keys()  # each demand has its answer
    for job in killed.tokens:
        assert killed.node.covered(job) == killed._steps(job)
        assert [event.kind for event in killed.node.events(job) if event.kind != "progress"] == [
            "granted",
            "attached",
            "finished",
        ]
    if mode in WITHOUT_MEMORY:
        assert killed.schedule() == left_alone.schedule()
    if mode not in ALL_AT_ONCE:
        for uuid in UUIDS:
            assert all(before.end_ns <= later.start_ns for before, later in pairwise(killed.on(uuid)))
            assert all(piece.end_ns - piece.start_ns == piece.work_ns for piece in killed.on(uuid))


@pytest.mark.parametrize("mode", ALL_AT_ONCE)
def test_a_device_that_serves_all_at_once_serves_little_twice(after, mode):
    """It always has something to do, so whatever it serves twice or not at all changes the time at which all is done."""
    left_alone = after(mode, 0, pauses=False)
    alone_ns = max(piece.end_ns for piece in left_alone.on(UUIDS[0]))
    for turn in points_in(left_alone, KILLS):
        killed = after(mode, 0, [turn], pauses=False)
        end_ns = max(piece.end_ns for piece in killed.on(UUIDS[0]))
        assert abs(end_ns - alone_ns) <= CUT_NS + 3 * LEAD_NS


def test_what_a_job_reports_of_its_own_device_counts_once(make_node):
    """At worst the last report is missing, which the job repeats."""
    node, random = make_node("manager.db"), Random("reports")
    token = node.token(node.manager.grant("a", UUIDS[:1], 0))
    fuse, free_ns, step = Fuse(random), [0, 0], 0
    session = node.manager.attach(token, "a", 0, 0).main
    kills = random.sample(range(1, 150), KILLS)
    while step < 150:
        start_ns = free_ns[-1]
        end_ns = start_ns + random.randint(1, 20) * MS
        node.clock.advance_to_ns(max(start_ns, node.clock.now_ns()))
        leases = node.manager._ledger._leases
        if step in kills:
            kills.remove(step)
            leases._memory = Memory(leases._memory, fuse)
            fuse.stores = random.choice([0, 0, 1])
        try:
            node.manager.report_use(session, Piece(start_ns, end_ns, end_ns - start_ns), steps_done=step)
            if fuse.stores is not None:
                raise KillError
            step += 1
            free_ns = [*free_ns[-1:], end_ns]
        except KillError:
            fuse.stores = None
            node.crash()
            session = node.manager.attach(token, "a", step, 0).main
            assert node.manager.free_ns(session) in (*free_ns, end_ns)
    assert not kills
    node.manager.finish(session.grant, step)
    assert node.covered("a") == 150
