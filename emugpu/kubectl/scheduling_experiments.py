"""SchedulingExperiments as `kubectl emugpu` shows them: by name, with their runs from the ConfigMap of their report."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from emugpu.kubectl.cluster import if_allowed, listed
from emulator_runtime.domain.errors import ClusterError, InputError
from operators.experiments.saved import SavedComparison, unpacked
from operators.kube.api import CONFIG_MAP, EXPERIMENT, Api, Json, NotThereError
from operators.kube.documents import texts_of
from operators.objects.experiment import Experiment
from operators.objects.forms import condition
from operators.objects.names import REPORT_KEYS, report_name

RUNS = REPORT_KEYS[-1]


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """A SchedulingExperiment; `doing`: its present activity, or why it has failed."""

    namespace: str
    name: str
    phase: str
    doing: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def experiment_view(document: Json) -> ExperimentView:
    """As the API server sends it; missing members are empty."""
    experiment = Experiment.read(document)
    status = experiment.status
    doing = status.doing or condition(status.conditions, "Failed").message
    return ExperimentView(experiment.key.namespace, experiment.key.name, experiment.phase or "Pending", doing)


async def experiments_in(api: Api, namespace: str, missing: list[str]) -> list[ExperimentView]:
    """Of this namespace, `*` for all; none if the cluster has no such resource or refuses it (`missing` gets the reason)."""
    documents = await if_allowed(listed(api, EXPERIMENT, namespace=namespace), [], missing)
    return sorted((experiment_view(document) for document in documents), key=lambda seen: seen.key)


def experiment_named(found: Sequence[ExperimentView], name: str) -> ExperimentView | None:
    """The experiment of this name. Raises InputError if several namespaces have one."""
    own = [seen for seen in found if seen.name == name]
    if len(own) > 1:
        several = ", ".join(seen.namespace for seen in own)
        raise InputError("experiment report", f"{name} is in namespaces {several}; say which one with -n")
    return own[0] if own else None


async def report_records_of(api: Api, seen: ExperimentView) -> SavedComparison:
    """The records of its runner so far. Raises ClusterError if there are none yet."""
    name = report_name(seen.name)
    try:
        document = await api.get(CONFIG_MAP, name, seen.namespace)
    except NotThereError:
        document = {}
    data = texts_of(document, "binaryData").get(RUNS, "")
    kept = unpacked(base64.b64decode(data), f"ConfigMap {seen.namespace}/{name}") if data else SavedComparison()
    if not kept.runs:
        state = f"it is {seen.phase}" + (f" ({seen.doing})" if seen.doing else "")
        raise ClusterError(f"SchedulingExperiment {seen.key} has no report: {state}")
    return kept
