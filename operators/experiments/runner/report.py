"""The ConfigMap beside an experiment: what its runs were, for the report, and for a runner that takes over from a dead one.

The report's page itself isn't there: with the library of its charts it is larger than a ConfigMap may be. It is made from
the runs, by `kubectl emugpu experiment report`.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.experiments.controller.names import KIND, REPORT_KEYS, RUNNER_MANAGER, report_name
from operators.experiments.runner.settings import Settings
from operators.experiments.saved import SavedComparison, packed, unpacked
from operators.kube.api import CONFIG_MAP, Api, Json, NotThereError
from operators.kube.documents import object_at, objects_in, texts_of

MOST_BYTES = 900 * 1024
"""Of a ConfigMap's values; Kubernetes takes 1 MiB, with names and metadata."""
SUMMARY, JOBS, RUNS = REPORT_KEYS


async def kept_before(api: Api, settings: Settings) -> SavedComparison | None:
    """What earlier attempts found; None where there was none. Raises InputError where the ConfigMap is somebody else's."""
    name = report_name(settings.name)
    place = f"ConfigMap {settings.namespace}/{name}"
    try:
        document = await api.get(CONFIG_MAP, name, settings.namespace)
    except NotThereError:
        return None
    owners = objects_in(object_at(document, "metadata"), "ownerReferences")
    if settings.uid not in [owner.get("uid") for owner in owners]:
        problem = "is there already and isn't this experiment's; delete it, or give the experiment another name"
        raise InputError(place, problem)
    data = texts_of(document, "binaryData").get(RUNS, "")
    return unpacked(base64.b64decode(data), place) if data else None


async def keep(
    api: Api, settings: Settings, kept: SavedComparison, files: Mapping[str, str], *, first: bool
) -> dict[str, Any]:
    """Write it, as much as there is room for; `files`: summary.json and jobs.csv. What the status says of it.

    `first`: it isn't there yet.
    """
    document, left_out = _document(settings, kept, files)
    keys = [key for key in REPORT_KEYS if key in document["data"] or key in document["binaryData"]]
    if first:
        await api.create(CONFIG_MAP, document, RUNNER_MANAGER)
    else:
        gone = {part: dict.fromkeys(set(REPORT_KEYS) - set(document[part])) for part in ("data", "binaryData")}
        patch = document | {part: gone[part] | document[part] for part in gone}
        await api.patch(CONFIG_MAP, report_name(settings.name), patch, RUNNER_MANAGER)
    return {"configMap": report_name(settings.name), "keys": keys, **({"leftOut": left_out} if left_out else {})}


def _document(settings: Settings, kept: SavedComparison, files: Mapping[str, str]) -> tuple[Json, str]:
    owner = {"apiVersion": "emugpu.dev/v1alpha1", "kind": KIND, "name": settings.name, "uid": settings.uid}
    texts, binary, left_out = next(
        found
        for found in _choices(kept, files)
        if sum(map(len, (*found[0].values(), *found[1].values()))) <= MOST_BYTES
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": report_name(settings.name),
            "namespace": settings.namespace,
            "labels": {"app.kubernetes.io/name": "emugpu", "app.kubernetes.io/component": "experiment"},
            "ownerReferences": [owner],
        },
        "data": {key: text.decode() for key, text in texts.items()},
        "binaryData": {key: base64.b64encode(data).decode() for key, data in binary.items()},
    }, left_out


def _choices(
    kept: SavedComparison, files: Mapping[str, str]
) -> Iterator[tuple[dict[str, bytes], dict[str, bytes], str]]:
    """The most first: texts, bytes and what is missing."""
    summary = {SUMMARY: files["summary.json"].encode()} if files.get("summary.json") else {}
    jobs = {JOBS: gzip.compress(files["jobs.csv"].encode(), mtime=0)} if files.get("jobs.csv") else {}
    runs, bare = {RUNS: packed(kept)}, {RUNS: packed(kept.without_spans())}
    yield summary, {**jobs, **runs}, ""
    yield summary, {**jobs, **bare}, "who held which device when"
    yield {}, bare, "who held which device when; jobs.csv and summary.json, which are made from the runs"
    yield (
        {},
        {RUNS: packed(SavedComparison(kept.inputs, kept.attempts, kept.calibration))},
        "all runs: they are too many jobs",
    )
