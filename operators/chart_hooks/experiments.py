"""Before an uninstall all experiments stop and lose their finalizers: nothing would remove those without the controller.

They are suspended first, since the controller may still run and would restart their runners.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from operators.experiments.controller.names import FIELD_MANAGER, FINALIZER, UID_LABEL
from operators.experiments.controller.objects import ExperimentFacts, experiment_facts, run_namespace_of, runner_facts
from operators.experiments.controller.turns import FINAL
from operators.kube.api import EXPERIMENT, JOB, NAMESPACE, Api, NotThereError


async def stop_experiments(api: Api, namespace: str, say: Callable[[str], None]) -> None:
    """`namespace`: where runners are. Ended experiments are not changed. Raises what Api raises."""
    for facts in await _experiments(api):
        if facts.phase not in FINAL and facts.spec.get("suspend") is not True:
            await _patch(api, facts, {"spec": {"suspend": True}})
            say(f"experiment {facts.key} is suspended")
    for runner in map(runner_facts, (await api.list(JOB, namespace=namespace, labels=UID_LABEL))[1]):
        await api.delete(JOB, runner.key.name, runner.key.namespace, uid=runner.key.uid)
    for run_namespace in map(run_namespace_of, (await api.list(NAMESPACE, labels=UID_LABEL))[1]):
        await api.delete(NAMESPACE, run_namespace.key.name)
        say(f"namespace {run_namespace.key.name} deleted")
    for facts in await _experiments(api):
        if facts.begun:
            await _patch(api, facts, {"finalizers": [each for each in facts.finalizers if each != FINALIZER]})


async def _experiments(api: Api) -> list[ExperimentFacts]:
    try:
        return [experiment_facts(document) for document in (await api.list(EXPERIMENT))[1]]
    except NotThereError:  # the CRD is gone, and all experiments with it
        return []


async def _patch(api: Api, facts: ExperimentFacts, change: dict[str, object]) -> None:
    metadata = {"namespace": facts.key.namespace, "uid": facts.key.uid}
    spec = {"spec": change.pop("spec")} if "spec" in change else {}
    with suppress(NotThereError):  # it was deleted meanwhile
        await api.patch(EXPERIMENT, facts.key.name, {"metadata": metadata | change, **spec}, FIELD_MANAGER)
