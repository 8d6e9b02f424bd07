"""The Job and the Service of an EmuJob as Kubernetes needs them.

Each of these was tried on a cluster (DESIGN.md): preemption deletes pods and must not count as a failure (podFailurePolicy); pods
of a suspended Job must be gone before others replace them (podReplacementPolicy); image, variables and arguments can't be changed
later, so the arguments have all configurations and an annotation chooses one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.exit_codes import EXIT_STOPPED, EXIT_WRONG_IN_POD
from emulator_runtime.node.layout import CONTAINER_TOOLS_DIR, GPU_RESOURCE, HOST_RESOURCE, JOB_LABEL, JOB_UID_LABEL
from emulator_runtime.workloads.command.arguments import BATCH_SIZE_VARIABLE, CONFIGURATION_VARIABLE, PROFILES_VARIABLE
from emulator_runtime.workloads.stopping import GRACE_S
from operators.kube.api import EMUJOB, Json
from operators.objects.emujob import Configuration, EmuJob, EmuJobSpec
from operators.objects.names import BATCH_SIZE, CONFIGURATION, CONTAINER, GATE
from operators.objects.node import HOSTNAME_LABEL
from operators.pools.labels import OWN_PREFIX, label_value

BACKOFF_LIMIT = 1000
"""Large: nodes restart and pods are killed. A wrong command ends a Job at once, see EXIT_WRONG_IN_POD."""
RENDEZVOUS_PORT = 29400
_PRODUCT = f"{OWN_PREFIX}gpu.product"
_FILES, _SHARED_MEMORY = "program", "shared-memory"
_PLACES = {_FILES: "/program", _SHARED_MEMORY: "/dev/shm"}
_PROGRAM_RUNNER = (
    "python3",
    "-c",
    f"import sys; sys.path.insert(0, {CONTAINER_TOOLS_DIR!r}); from emulator_runtime.workloads.__main__ import main; "
    "sys.exit(main(sys.argv[1:]))",
)
"""The node's copy of the library, without a variable that the program would inherit."""


@dataclass(frozen=True, slots=True)
class Images:
    """The image of pods whose EmuJob names none."""

    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


def job_document(job: EmuJob, spec: EmuJobSpec, images: Images, chosen: Configuration, types: Sequence[str]) -> Json:
    """The Job to create. `chosen`: the configuration with which it starts; `types`: usable GPU types, empty: any."""
    policy = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}], "action": "Ignore"}
    by_exit = ((EXIT_STOPPED, "Ignore"), (EXIT_WRONG_IN_POD, "FailJob"))
    rules = [policy, *(_on_exit(code, action) for code, action in by_exit)]
    own = {JOB_LABEL: job.key.name, JOB_UID_LABEL: job.key.uid}
    metadata = {
        "labels": {**spec.template.labels, **own},
        "annotations": {**spec.template.annotations, CONFIGURATION: chosen.name},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job),
        "spec": {
            "completionMode": "Indexed",
            "completions": spec.nodes,
            "parallelism": spec.nodes,
            "backoffLimit": BACKOFF_LIMIT,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": rules},
            "suspend": spec.actuator == "jobs" or spec.suspend,
            "template": {"metadata": metadata, "spec": _pod_spec(job, spec, images, chosen, types)},
        },
    }


def service_document(job: EmuJob) -> Json:
    """The headless Service by which the pods of a job find each other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # ranks connect to each other before they are ready
            "selector": {JOB_LABEL: job.key.name},
            "ports": [{"name": "rendezvous", "port": RENDEZVOUS_PORT}],
        },
    }


def arguments(job: EmuJob, spec: EmuJobSpec) -> list[str]:
    """The arguments of `emugpu`, or of the node's copy of its library where a program runs."""
    if spec.program is not None:
        (configuration,) = spec.configurations
        batch_size = configuration.batch_size // max(1, configuration.gpus)
        resumes = ["--resumes"] if spec.program.resumes else []
        words = spec.program.words(spec.steps, batch_size)
        return ["program", "--steps", str(spec.steps), *_work(configuration, spec.nodes), *resumes, "--", *words]
    if len(spec.configurations) == 1:
        work = _work(spec.configurations[0], spec.nodes)
    else:
        work = [
            part
            for c in spec.configurations
            for part in ("--configuration", f"{c.name}={' '.join(_work(c, spec.nodes))}")
        ]
    name = job.key.name
    ranks = ["--nodes", str(spec.nodes), "--rendezvous", f"{name}-0.{name}:{RENDEZVOUS_PORT}"]
    return ["train", f"--{spec.unit}", str(spec.length), *work, *(ranks if spec.nodes > 1 else [])]


def _work(configuration: Configuration, nodes: int) -> list[str]:
    stages = [*_stages(configuration, nodes)]
    if configuration.model:
        return ["--model", configuration.model, "--batch-size", str(configuration.batch_size), *stages]
    on_gpus = configuration.gpus and configuration.gpu_memory_bytes  # without GPUs there is no GPU memory
    memory = ["--memory", str(configuration.gpu_memory_bytes)] if on_gpus else []
    return ["--step-time-s", _seconds(configuration.step_time_ns), *memory, *_speeds(configuration), *stages]


def _stages(configuration: Configuration, nodes: int) -> Iterator[str]:
    times, input_ns = configuration.stages, configuration.input_cpu_ns // nodes
    options = {
        "--fetch-s": times.fetch_ns,
        "--input-cpu-s": input_ns,
        "--transfer-s": times.transfer_ns,
        "--host-s": configuration.host_ns,
        "--exchange-s": times.exchange_ns,
    }
    for option, stage_ns in options.items():
        if stage_ns:
            yield from (option, _seconds(stage_ns))
    if input_ns and configuration.cpu_milli:  # else one CPU, the default of `train` and of predictions
        yield from ("--cpus", _cpus(configuration.cpu_milli))


def _seconds(duration_ns: int) -> str:
    whole, nanoseconds = divmod(duration_ns, 10**9)
    return f"{whole}.{nanoseconds:09d}".rstrip("0").rstrip(".")


def _speeds(configuration: Configuration) -> Iterator[str]:
    """How its speed depends on CPUs and memory, and its amounts if it has no allocation."""
    sensitivity = configuration.sensitivity
    if sensitivity is None:
        return
    if sensitivity.cpu:
        yield from ("--cpu-speeds", _curve((_cpus(amount), speed) for amount, speed in sensitivity.cpu))
        yield from ("--cpus", _cpus(configuration.cpu_milli))
    if sensitivity.memory:
        yield from ("--memory-speeds", _curve((str(amount), speed) for amount, speed in sensitivity.memory))
        yield from ("--host-memory", str(configuration.memory_bytes))


def _curve(knots: Iterable[tuple[str, float]]) -> str:
    return ",".join(f"{amount}={speed!r}" for amount, speed in knots)


def _cpus(milli: int) -> str:
    return f"{milli // 1000}.{milli % 1000:03d}".rstrip("0").rstrip(".")


def _pod_spec(job: EmuJob, spec: EmuJobSpec, images: Images, chosen: Configuration, types: Sequence[str]) -> Json:
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "name": CONTAINER,
        "image": spec.image or images.image,
        "imagePullPolicy": spec.pull_policy or images.pull_policy,
        **({"command": list(_PROGRAM_RUNNER)} if spec.program is not None else {}),
        "args": arguments(job, spec),
        "env": [*(dict(variable) for variable in spec.template.env), *_variables(spec)],
        "resources": _resources(spec, chosen),
        "securityContext": confined,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # for the EmuJob's condition Failed
    }
    volumes = _volumes(spec)
    if volumes:
        container["volumeMounts"] = [{"name": each["name"], "mountPath": _PLACES[each["name"]]} for each in volumes]
    if spec.program is not None and spec.program.files:
        container["workingDir"] = _PLACES[_FILES]
    pod: Json = {
        **spec.template.pod,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": "serviceAccountName" in spec.template.pod,
        "enableServiceLinks": False,
        "schedulerName": spec.pod_scheduler,
        "securityContext": user,
        "containers": [container],
        **({"volumes": volumes} if volumes else {}),
    }
    if images.pull_secrets and not spec.image:
        pod["imagePullSecrets"] = [{"name": name} for name in images.pull_secrets]
    if spec.actuator == "gated":
        pod["schedulingGates"] = [{"name": GATE}]
    if spec.nodes > 1:
        pod["subdomain"] = job.key.name
    affinity = _affinity(job, spec, types)
    return pod | ({"affinity": affinity} if affinity else {})


def _resources(spec: EmuJobSpec, chosen: Configuration) -> Json:
    """A limit of 0 is left out: a kubelet rejects a pod with a limit of 0 if the resource has no healthy device (devicemanager,
    devicesToAllocate). Limits may be added and removed while a Job is suspended.

    A job that may run without a GPU has a host slot as well, in each of its configurations.
    """
    requests, limits = spec.native.resources(HostShare(chosen.cpu_milli, chosen.memory_bytes))
    if chosen.gpus:
        limits[GPU_RESOURCE] = str(chosen.gpus)
    if not all(configuration.gpus for configuration in spec.configurations):
        limits[HOST_RESOURCE] = "1"
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _affinity(job: EmuJob, spec: EmuJobSpec, types: Sequence[str]) -> Json:
    found: Json = {}
    if types:
        products = {"key": _PRODUCT, "operator": "In", "values": [label_value(gpu_type) for gpu_type in types]}
        terms = [{"matchExpressions": [products]}]
        found["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if spec.nodes > 1:  # one template can't send each index to a node of its own
        apart = {"labelSelector": {"matchLabels": {JOB_LABEL: job.key.name}}, "topologyKey": HOSTNAME_LABEL}
        found["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    return found


def _volumes(spec: EmuJobSpec) -> list[Json]:
    """What a program has beside its image: its files, and room for what its processes share (64 MiB without it)."""
    if spec.program is None:
        return []
    files = [{"name": _FILES, "configMap": {"name": spec.program.files}}] if spec.program.files else []
    return [*files, {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}]


def _variables(spec: EmuJobSpec) -> Iterator[Json]:
    """The job's own profiles, and what a scheduler may choose for each run, from the annotations of the pod."""
    if spec.profiles:
        yield {"name": PROFILES_VARIABLE, "value": json.dumps(spec.own_profiles, separators=(",", ":"))}
    chosen = {CONFIGURATION_VARIABLE: CONFIGURATION} | ({BATCH_SIZE_VARIABLE: BATCH_SIZE} if spec.elastic else {})
    for name, annotation in chosen.items():
        path = f"metadata.annotations['{annotation}']"
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _on_exit(code: int, action: str) -> Mapping[str, object]:
    codes = {"containerName": CONTAINER, "operator": "In", "values": [code]}
    return {"onExitCodes": codes, "action": action}


def _metadata(job: EmuJob) -> Json:
    owner = {"apiVersion": EMUJOB.api_version, "kind": EMUJOB.kind, "name": job.key.name, "uid": job.key.uid}
    labels = {JOB_LABEL: job.key.name, "app.kubernetes.io/managed-by": "emugpu-operator"}
    return {
        "name": job.key.name,
        "namespace": job.key.namespace,
        "labels": labels,
        "ownerReferences": [{**owner, "controller": True}],
    }
