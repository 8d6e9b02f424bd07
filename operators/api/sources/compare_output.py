"""Comparisons as a source: directories written by `emugpu compare`, read again whenever they change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from emulator_runtime.domain.errors import InputError, RefusedError
from operators.api.model.changes import Changes
from operators.api.model.snapshot import Cluster, Device, Job, JobRun, Node, Snapshot, Timeline
from operators.api.sources.output_files import JOBS, SPANS, SUMMARY, Output, read_output

READ_S = 1.0
"""Seconds between two checks of the files."""
INEXACT = "there is no spans.csv: only the first start and the end of a preempted job are known"
Stamp = tuple[tuple[int, int], ...]


class CompareOutput:
    """Source over these directories, one experiment each. Raises InputError if one of them can't be read at the start."""

    def __init__(self, directories: Sequence[Path], changes: Changes) -> None:
        self.changes = changes
        self._directories = dict(zip(_names(directories), directories, strict=True))
        self._stamp = self._stamped()
        self._problem = ""
        self._snapshot = self._read(1)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def waits_for(self) -> str:
        return ""

    async def timeline(self, uid: str) -> Timeline | None:
        snapshot = self._snapshot
        job = snapshot.job(uid)
        if job is None:
            return None
        runs = snapshot.runs_of(uid)
        return Timeline(job, runs, notes=() if all(run.exact for run in runs) else (INEXACT,))

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        raise RefusedError("jobs of a finished comparison can't be changed; --kubeconfig shows a cluster instead")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(READ_S)
            if await asyncio.to_thread(self.refresh):
                self.changes.add("reset")

    def refresh(self) -> bool:
        """Reads the files again if one has changed; returns whether the snapshot changed. Unreadable files leave it as it is:
        what is wrong with them is printed once, and they are read again until it is mended."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return False
        try:
            self._snapshot = self._read(self._snapshot.version + 1)
        except InputError as error:
            if str(error) != self._problem:
                print(f"emugpu: {error} (the pages show what was there before)", file=sys.stderr, flush=True)
            self._problem = str(error)
            return False
        self._stamp, self._problem = stamp, ""
        return True

    def _stamped(self) -> Stamp:
        paths = (directory / name for directory in self._directories.values() for name in (JOBS, SPANS, SUMMARY))
        return tuple(_stamp_of(path) for path in paths)

    def _read(self, version: int) -> Snapshot:
        outputs = [read_output(directory, name) for name, directory in self._directories.items()]
        return snapshot_of(outputs, version)


def snapshot_of(outputs: Sequence[Output], version: int) -> Snapshot:
    """One snapshot of all experiments; each of their runs begins at 0."""
    jobs: list[Job] = sorted((job for o in outputs for job in o.jobs), key=lambda job: (job.submitted_s, job.uid))
    runs: dict[str, tuple[JobRun, ...]] = {uid: stays for o in outputs for uid, stays in o.runs.items()}
    last_s = max((job.finished_s or 0.0 for job in jobs), default=0.0)
    title = ", ".join(o.experiment.id for o in outputs)
    return Snapshot(
        version=version,
        cluster=Cluster("comparison", "comparison", "emulated", title, writable=False),
        now=lambda: last_s,
        jobs=tuple(jobs),
        runs=runs,
        nodes=tuple(_first(node for o in outputs for node in o.nodes)),
        devices=tuple(_first_device(device for o in outputs for device in o.devices)),
        experiments=tuple(o.experiment for o in outputs),
    )


def _first(nodes: Iterable[Node]) -> list[Node]:
    """One node per name: if several comparisons have it, the one with most devices."""
    found: dict[str, Node] = {}
    for node in nodes:
        known = found.get(node.name)
        found[node.name] = node if known is None or node.devices > known.devices else known
    return list(found.values())


def _first_device(devices: Iterable[Device]) -> list[Device]:
    return list({device.id: device for device in devices}.values())


def _names(directories: Sequence[Path]) -> list[str]:
    """The directories' base names, with a number where two are equal."""
    names: list[str] = []
    for directory in directories:
        base = directory.resolve().name or "comparison"
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
    return names


def _stamp_of(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
