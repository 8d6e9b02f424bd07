"""Before an uninstall all experiments stop and lose their finalizers: nothing would remove those without the controller.

They are suspended first, since the controller may still run and would restart their runners.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from operators.experiments.controller.controller import FIELD_MANAGER
from operators.experiments.controller.objects import run_namespace_of, runner_job_of
from operators.kube.api import EXPERIMENT, JOB, NAMESPACE, Api, Json, NotThereError
from operators.objects.experiment import Experiment
from operators.objects.names import EXPERIMENT_FINALIZER, EXPERIMENT_UID_LABEL, FINAL


async def stop_experiments(api: Api, namespace: str, say: Callable[[str], None]) -> None:
    """`namespace`: where runners are. Ended experiments are not changed. Raises what Api raises."""
    for experiment in await _experiments(api):
        if experiment.phase not in FINAL and experiment.spec_json.get("suspend") is not True:
            await _patch(api, experiment, spec={"suspend": True})
            say(f"experiment {experiment.key} is suspended")
    for runner in map(runner_job_of, (await api.list(JOB, namespace=namespace, labels=EXPERIMENT_UID_LABEL))[1]):
        await api.delete(JOB, runner.key.name, runner.key.namespace, uid=runner.key.uid)
    for run_namespace in map(run_namespace_of, (await api.list(NAMESPACE, labels=EXPERIMENT_UID_LABEL))[1]):
        if run_namespace.owner:
            await api.delete(NAMESPACE, run_namespace.key.name)
            say(f"namespace {run_namespace.key.name} deleted")
    for experiment in await _experiments(api):
        if EXPERIMENT_FINALIZER in experiment.finalizers:
            kept = [each for each in experiment.finalizers if each != EXPERIMENT_FINALIZER]
            await _patch(api, experiment, metadata={"finalizers": kept})


async def _experiments(api: Api) -> list[Experiment]:
    try:
        return [Experiment.read(document) for document in (await api.list(EXPERIMENT))[1]]
    except NotThereError:  # the CRD is gone, and all experiments with it
        return []


async def _patch(api: Api, experiment: Experiment, *, metadata: Json | None = None, spec: Json | None = None) -> None:
    own = {"namespace": experiment.key.namespace, "uid": experiment.key.uid}
    document = {"metadata": own | (metadata or {})} | ({"spec": spec} if spec else {})
    with suppress(NotThereError):  # it was deleted meanwhile
        await api.patch(EXPERIMENT, experiment.key.name, document, FIELD_MANAGER)
