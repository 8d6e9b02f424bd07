"""The report of an experiment: a ConfigMap beside it with its runs, from which a restarted runner continues too.

report.html is not in it: with its chart library it is larger than a ConfigMap may be. `kubectl emugpu experiment report` makes
it from the runs.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.experiments.runner.inputs import RUNNER_MANAGER, Settings
from operators.experiments.saved import SavedComparison, packed, unpacked
from operators.kube.api import CONFIG_MAP, EXPERIMENT, Api, Json, NotThereError
from operators.kube.documents import object_at, objects_in, texts_of
from operators.objects.names import REPORT_KEYS, report_name

MAX_BYTES = 900 * 1024
"""Of all values together; Kubernetes allows 1 MiB with names and metadata."""
SUMMARY, JOBS, RUNS = REPORT_KEYS


async def read_saved(api: Api, settings: Settings) -> SavedComparison | None:
    """The results of earlier attempts; None: there was none. Raises InputError where another object owns the ConfigMap."""
    name = report_name(settings.name)
    place = f"ConfigMap {settings.namespace}/{name}"
    try:
        document = await api.get(CONFIG_MAP, name, settings.namespace)
    except NotThereError:
        return None
    owners = objects_in(object_at(document, "metadata"), "ownerReferences")
    if settings.uid not in [owner.get("uid") for owner in owners]:
        problem = "exists and does not belong to this experiment; delete it, or give the experiment another name"
        raise InputError(place, problem)
    data = texts_of(document, "binaryData").get(RUNS, "")
    return unpacked(base64.b64decode(data), place) if data else None


async def save(
    api: Api, settings: Settings, saved: SavedComparison, files: Mapping[str, str], *, first: bool
) -> dict[str, Any]:
    """Write the ConfigMap, as far as there is room; returns status.report. `files`: summary.json and jobs.csv.

    `first`: the ConfigMap does not exist yet.
    """
    document, left_out = _document(settings, saved, files)
    keys = [key for key in REPORT_KEYS if key in document["data"] or key in document["binaryData"]]
    if first:
        await api.create(CONFIG_MAP, document, RUNNER_MANAGER)
    else:
        gone = {part: dict.fromkeys(set(REPORT_KEYS) - set(document[part])) for part in ("data", "binaryData")}
        patch = document | {part: gone[part] | document[part] for part in gone}
        await api.patch(CONFIG_MAP, report_name(settings.name), patch, RUNNER_MANAGER)
    return {"configMap": report_name(settings.name), "keys": keys, **({"leftOut": left_out} if left_out else {})}


def _document(settings: Settings, saved: SavedComparison, files: Mapping[str, str]) -> tuple[Json, str]:
    owner = {"apiVersion": EXPERIMENT.api_version, "kind": EXPERIMENT.kind, "name": settings.name, "uid": settings.uid}
    texts, binary, left_out = next(
        found
        for found in _choices(saved, files)
        if sum(map(len, (*found[0].values(), *found[1].values()))) <= MAX_BYTES
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
    saved: SavedComparison, files: Mapping[str, str]
) -> Iterator[tuple[dict[str, bytes], dict[str, bytes], str]]:
    """The contents to choose from, the largest first: texts, bytes, and what is omitted."""
    summary = {SUMMARY: files["summary.json"].encode()} if files.get("summary.json") else {}
    jobs = {JOBS: gzip.compress(files["jobs.csv"].encode(), mtime=0)} if files.get("jobs.csv") else {}
    runs, bare = {RUNS: packed(saved)}, {RUNS: packed(saved.without_spans())}
    yield summary, {**jobs, **runs}, ""
    yield summary, {**jobs, **bare}, "who held which device when"
    yield {}, bare, "who held which device when; jobs.csv and summary.json, which are made from the runs"
    yield (
        {},
        {RUNS: packed(SavedComparison(saved.inputs, saved.attempts, saved.calibration))},
        "all runs: they have too many jobs",
    )
