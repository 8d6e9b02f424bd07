"""The inputs of a runner: its settings, the SchedulingExperiment, and the comparison that follows from them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.settings import EnvSettings, setting
from operators.experiments.cluster_state import ClusterState
from operators.experiments.comparison import ComparisonPlan
from operators.fitting.remedy import remedy
from operators.kube.api import CONFIG_MAP, EXPERIMENT, Api, NotThereError
from operators.kube.documents import object_at, text_at, texts_of
from operators.objects.experiment import ExperimentSpec, Source, parse_spec
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.interface.costs import ClusterCosts

RUNNER_MANAGER = "emugpu-experiment-runner"
"""Field manager of what runners write."""
WORKLOAD, CLUSTER, PROFILES = Path("workload.csv"), Path("cluster.yaml"), Path("profiles.json")
"""In the working directory; errors about them say these names."""


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Which experiment this runner executes. Each field is read from the variable EMUGPU_EXPERIMENT_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_EXPERIMENT_"

    namespace: str = setting("namespace of the SchedulingExperiment")
    name: str = setting("its name")
    uid: str = setting("its uid: another experiment of this name is refused")
    id: str = setting("part of the names of its runs' namespaces and schedulers")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The spec, with the texts that it refers to. `cluster` None: the nodes of the pools; `profiles` None: the bundled ones."""

    spec: ExperimentSpec
    workload: str
    cluster: str | None
    profiles: str | None = None

    def digest(self, state: ClusterState) -> str:
        """Runs with different digests can't be compared."""
        said = (
            self.workload,
            self.cluster,
            self.spec.model_copy(update={"suspend": False, "ttl_s": None}),
            state.spec,
            *([self.profiles] if self.profiles is not None else []),  # others keep the digest that they had
        )
        return hashlib.sha256(repr(said).encode()).hexdigest()


async def read(api: Api, settings: Settings) -> Inputs:
    """Raises NotThereError where the experiment is gone, InputError for mistakes in it, and what Api raises."""
    document = await api.get(EXPERIMENT, settings.name, settings.namespace)
    if text_at(object_at(document, "metadata"), "uid") != settings.uid:
        raise NotThereError(f"{settings.namespace}/{settings.name} is another experiment now (another uid)")
    spec = parse_spec(object_at(document, "spec"))
    workload = await _text(api, spec.workload, settings.namespace, "spec.workload")
    cluster = await _text(api, spec.cluster, settings.namespace, "spec.cluster") if spec.cluster is not None else None
    given = spec.profiles
    profiles = await _text(api, given, settings.namespace, "spec.profiles") if given is not None else None
    return Inputs(spec, workload, cluster, profiles)


def load(inputs: Inputs, state: ClusterState) -> tuple[Experiment, ComparisonPlan]:
    """Writes the files and reads them as the command line does. Raises InputError or PolicyError for mistakes in them."""
    spec = inputs.spec
    WORKLOAD.write_text(inputs.workload, encoding="utf-8")
    cluster = state.spec
    if inputs.cluster is not None:
        CLUSTER.write_text(inputs.cluster, encoding="utf-8")
        cluster = load_cluster(CLUSTER)
    elif not cluster.nodes:
        raise InputError("spec.cluster", "the cluster's pools have no node; `kubectl get emugpupools` shows them")
    if spec.costs is not None:
        cluster = replace(cluster, costs=ClusterCosts(**spec.costs))
        if wrong := cluster.costs.problem():
            raise InputError("spec.costs.hostSlots", wrong[1])
    if inputs.profiles is not None:
        PROFILES.write_text(inputs.profiles, encoding="utf-8")
    experiment = Experiment.load(
        WORKLOAD,
        cluster,
        estimates=spec.estimates,
        seed=spec.seed,
        profiles=PROFILES if inputs.profiles is not None else None,
        stretch=spec.stretch,
        remedy=remedy,
    ).in_pods()
    program = next((job for job in experiment.workload.jobs if job.program is not None), None)
    if program is not None:  # a user who may create experiments could else run any image outside the own quota
        problem = f"job {program.job_id!r} runs a program; programs run with `emugpu compare --on kubernetes`"
        raise InputError("spec.workload", f"{problem}, an experiment's jobs are emulated")
    plan = ComparisonPlan(
        policies=experiment.check_policies(spec.policies),
        pod_schedulers=spec.pod_schedulers,
        repeats=spec.repeats,
        calibrate=spec.costs is None,
        derived=inputs.cluster is None,
        place="spec.cluster",
        where="the cluster",
    )
    return experiment, plan


async def _text(api: Api, source: Source, namespace: str, place: str) -> str:
    if not source.config_map:
        return source.text
    try:
        document = await api.get(CONFIG_MAP, source.config_map, namespace)
    except NotThereError as error:
        raise InputError(place, f"there is no ConfigMap {source.config_map} in namespace {namespace}") from error
    data = texts_of(document, "data")
    if source.key not in data:
        known = ", ".join(sorted(data)) or "nothing"
        raise InputError(place, f"ConfigMap {source.config_map} has no {source.key!r}, but {known}")
    return data[source.key]
