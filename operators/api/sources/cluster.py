"""A cluster as a source: EmuJobs, pools and nodes from the API server, and results from the jobs controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.units import to_s
from operators.api.model.changes import Changes
from operators.api.model.snapshot import Cluster, Device, Job, JobRun, Node, Snapshot, Timeline
from operators.api.sources.emujobs import JobRecord, progress_of_runs, record_of, run_of, with_places
from operators.api.sources.experiments import experiments_of
from operators.api.sources.hardware import Hardware, hardware_of, with_holders
from operators.api.sources.stored_results import StoredResults
from operators.kube.api import EMUJOB, NODE, POOL, Api, NotThereError, applied
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store
from operators.objects.node import Node as ClusterNode
from operators.objects.pool import Pool

FIELD_MANAGER = "emugpu-api"
READ_S = 1.0
"""Seconds between two reads of the results store's changes."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The cluster's name on the pages, and whether jobs may be suspended here."""

    title: str
    writable: bool = True


class ClusterSource:
    """Source over an API server. `wall_ns`: the wall clock; `results` None: there is no results store."""

    def __init__(
        self,
        api: Api,
        changes: Changes,
        wall_ns: Callable[[], int],
        naming: Naming,
        results: StoredResults | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self.changes = changes
        self._api, self._wall_ns, self._naming = api, wall_ns, naming
        self._results, self._pauses = results, pauses or Pauses(settle=0.5)
        self._emujobs: Store[JobRecord] = Store(record_of)
        self._pools: Store[Pool] = Store(Pool.read)
        self._nodes: Store[ClusterNode] = Store(ClusterNode.read)
        self._followed = (
            Followed(EMUJOB, self._emujobs),
            Followed(POOL, self._pools),
            Followed(NODE, self._nodes),
        )
        self._problems: dict[str, str] = {}
        self._cached: dict[str, tuple[JobRecord, Job, tuple[JobRun, ...]]] = {}
        self._hardware, self._hardware_changed = Hardware(), False
        self._changed = asyncio.Event()
        self._snapshot = Snapshot(1, self._described("no objects have been listed yet"), self._now_s)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def waits_for(self) -> str:
        missing = [each.resource.plural for each in self._followed if not each.store.synced]
        return f"the first list of {', '.join(missing)}" if missing else ""

    async def timeline(self, uid: str) -> Timeline | None:
        snapshot = self._snapshot
        job = snapshot.job(uid)
        if job is None:
            return None
        found = next((each for each in self._emujobs.values() if each.job.uid == uid), None)
        conditions = found.conditions if found is not None else ()
        runs = snapshot.runs_of(uid)
        if self._results is None:
            return Timeline(job, runs, tuple(progress_of_runs(runs, snapshot.now_s)), conditions)
        try:
            result, progress = await asyncio.to_thread(self._results.history, uid)
        except ClusterError as error:
            return Timeline(job, runs, (), conditions, missing=str(error))
        if result is not None and result.runs:  # all runs; a status has the newest only
            stored = JobRecord(job, job.name, tuple(run_of(run) for run in result.runs))
            runs = with_places(stored, self._hardware.places)[1]
        shown_progress = progress or progress_of_runs(runs, snapshot.now_s)
        return Timeline(job, runs, tuple(shown_progress), conditions, result.notes if result is not None else ())

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        job = self._snapshot.job(uid)
        if job is None or job.deleted:
            raise NotThereError(f"job {uid} has no EmuJob that could be suspended")
        metadata = {"namespace": job.namespace}
        document = applied(EMUJOB, job.name, uid, metadata=metadata, spec={"suspend": suspended})
        found = await self._api.apply(EMUJOB, job.name, document, FIELD_MANAGER)
        if self._emujobs.update("MODIFIED", found):
            self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for followed in self._followed:
                group.create_task(self._follow(followed))
            if self._results is not None:
                group.create_task(self._read_results(self._results))
            group.create_task(self._work())

    # --- the snapshot -----------------------------------------------------------------------------------------------------

    async def _follow(self, followed: Followed) -> None:
        kind = followed.resource.plural

        def changed() -> None:
            self._hardware_changed = self._hardware_changed or followed.resource is not EMUJOB
            self._changed.set()

        def failed(error: EmuGpuError) -> None:
            self._note_problem(kind, str(error))

        await follow(self._api, followed, self._pauses, changed, failed, listed=lambda: self._note_problem(kind, ""))

    async def _work(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._pauses.settle)
            self._changed.clear()
            self._renew()

    async def _read_results(self, results: StoredResults) -> None:
        while True:
            if await asyncio.to_thread(results.refresh):
                self._changed.set()
            await asyncio.sleep(READ_S)

    def _renew(self) -> None:
        """Makes a new snapshot and adds the differences to `changes`."""
        before = self._snapshot
        if self._hardware_changed:
            self._rebuild()
        pairs = sorted(self._jobs(), key=lambda pair: (pair[0].submitted_s, pair[0].uid))
        jobs = tuple(job for job, _ in pairs)
        nodes, devices = with_holders(self._hardware, jobs)
        self._snapshot = Snapshot(
            version=before.version + 1,
            cluster=self._described(self._problem()),
            now=self._now_s,
            jobs=jobs,
            runs={job.uid: runs for job, runs in pairs},
            nodes=nodes,
            devices=devices,
            experiments=tuple(experiments_of(jobs)),
            missing=self._results.problem if self._results is not None else "",
        )
        self._add_changes(before, self._snapshot)

    def _rebuild(self) -> None:
        self._hardware_changed = False
        hardware = hardware_of(self._pools.values(), self._nodes.values())
        if hardware.places != self._hardware.places:
            self._cached = {}
        self._hardware = hardware

    def _jobs(self) -> Iterable[tuple[Job, tuple[JobRun, ...]]]:
        """Reuses the results for unchanged jobs."""
        present = {found.job.uid: found for found in self._emujobs.values()}
        stored = self._results.jobs if self._results is not None else {}
        kept = {}
        for uid, found in {**stored, **present}.items():
            known = self._cached.get(uid)
            if known is None or known[0] is not found:
                known = (found, *with_places(found, self._hardware.places))
            kept[uid] = known
            yield known[1], known[2]
        self._cached = kept

    def _add_changes(self, before: Snapshot, after: Snapshot) -> None:
        old = {job.uid: job for job in before.jobs}
        for job in after.jobs:
            was = old.pop(job.uid, None)
            if was is not job and was != job:
                self.changes.add("job", job.uid, job.namespace)
        for job in old.values():
            self.changes.add("job", job.uid, job.namespace)
        devices: dict[str, Device] = {device.id: device for device in before.devices}
        for device in after.devices:
            if devices.pop(device.id, None) != device:
                self.changes.add("device", device.id)
        nodes: dict[str, Node] = {node.name: node for node in before.nodes}
        for node in after.nodes:
            if nodes.pop(node.name, None) != node:
                self.changes.add("node", node.name)
        for name in (*devices, *nodes):
            self.changes.add("device" if name in devices else "node", name)

    # --- problems ---------------------------------------------------------------------------------------------------------

    def _note_problem(self, plural: str, problem: str) -> None:
        """Notes why objects of this kind can't be read; `problem` empty: they can."""
        if self._problems.get(plural, "") != problem:
            self._problems[plural] = problem
            self._changed.set()

    def _problem(self) -> str:
        stored = self._results.problem if self._results is not None else ""
        return next(filter(None, (*self._problems.values(), stored)), "")

    def _described(self, problem: str) -> Cluster:
        return Cluster("kubernetes", "kubernetes", "wall", self._naming.title, self._naming.writable, problem)

    def _now_s(self) -> float:
        return to_s(self._wall_ns())
