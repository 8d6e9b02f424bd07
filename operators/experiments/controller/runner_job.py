"""The Job that runs an experiment, in the operator's namespace.

It is not in the experiment's namespace: the runner's account has cluster-wide rights, and whoever may create pods in a namespace
may use all service accounts there. Owner references can't cross namespaces, so the experiment has a finalizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.exit_codes import EXIT_WRONG_IN_POD
from operators.kube.api import Json
from operators.objects.experiment import Experiment, ExperimentSpec
from operators.objects.names import EXPERIMENT_OWNER, EXPERIMENT_UID_LABEL, experiment_id, runner_name

GRACE_S = 120
"""Termination grace period: a stopped runner deletes the namespace of its run, and waits until it is gone."""
KEEP_S = 86400
"""How long the Job of an ended experiment is kept, for its log."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The namespace, service account and image of runners. `pull_secrets`: in `namespace`.

    `placement`: nodeSelector, tolerations and priorityClassName of the pods.
    """

    namespace: str
    account: str
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)


def runner_document(experiment: Experiment, spec: ExperimentSpec, settings: RunnerSettings) -> Json:
    """The Job to create: never two pods at once, and evictions don't count as failures."""
    disruption = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}], "action": "Ignore"}
    final = {"onExitCodes": {"operator": "In", "values": [EXIT_WRONG_IN_POD]}, "action": "FailJob"}
    name, uid = runner_name(experiment.key.name, experiment.key.uid), experiment.key.uid
    labels = {
        "app.kubernetes.io/name": "emugpu",
        "app.kubernetes.io/component": "experiment",
        "app.kubernetes.io/managed-by": "emugpu-jobs",
        EXPERIMENT_UID_LABEL: uid,
    }
    notes = {EXPERIMENT_OWNER: f"{experiment.key.namespace}/{experiment.key.name}"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels, "annotations": notes},
        "spec": {
            "backoffLimit": spec.retries,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [disruption, final]},
            "ttlSecondsAfterFinished": KEEP_S,
            "suspend": False,
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": _pod_spec(experiment, settings)},
        },
    }


def _pod_spec(experiment: Experiment, settings: RunnerSettings) -> Json:
    variables = {
        "NAMESPACE": experiment.key.namespace,
        "NAME": experiment.key.name,
        "UID": experiment.key.uid,
        "ID": experiment_id(experiment.key.uid),
    }
    container = {
        "name": "runner",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["python3", "-m", "operators.experiments.runner"],
        "env": [{"name": f"EMUGPU_EXPERIMENT_{name}", "value": value} for name, value in variables.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": dict(settings.resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    secrets = {"imagePullSecrets": [{"name": name} for name in settings.pull_secrets]} if settings.pull_secrets else {}
    return {
        "restartPolicy": "Never",
        "serviceAccountName": settings.account,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **secrets,
        **settings.placement,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
