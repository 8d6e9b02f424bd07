"""`kubectl emugpu smi NODE|POD`: the output of nvidia-smi on a node or in a pod.

For a node it shows all emulated GPUs, for a pod those that its containers hold, counted from 0 as in the pod. A name that both a
node and a pod have means the node; write node/NAME or pod/NAME to say which. Process ids aren't known.

exit status: 0, 2 for an error, 6 if no GPU has the requested id or the pod holds none yet, 9 if there are no GPUs to hold
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from emugpu.kubectl import options
from emugpu.kubectl.node_views import DeviceView, Holder, NodeView, nodes_with_gpus
from emugpu.smi import program
from emugpu.smi.devices import Gpu, Picture, Process, Whole, counted
from emulator_runtime.domain.errors import ClusterError, InputError
from operators.kube.api import NODE, POD, Api, NotThereError
from operators.kube.documents import object_at, text_at

PROGRAM = "kubectl emugpu smi"
KINDS = ("node", "pod")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NODE|POD", help="a node, or a pod of the namespace; node/NAME, pod/NAME")
    options.add_output(parser, "json")
    program.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """The module's docstring has the exit status. Raises errors of the tree."""
    kind, _, name = args.name.rpartition("/")
    if kind not in ("", *KINDS) or not name:
        raise InputError(args.name, "name a node or a pod: NAME, node/NAME or pod/NAME")
    with options.cluster_of(args) as cluster:

        def picture() -> Picture | None:
            return cluster.ask(lambda api: _picture(api, kind, name, cluster.namespace))

        if args.output == "json":
            seen = picture()
            gpus = program.selected(seen.gpus, None) if seen is not None else []
            print(json.dumps([asdict(gpu) for gpu in gpus], indent=2))
            return 0 if gpus else program.EXIT_NO_DRIVER
        return program.run_smi(args, PROGRAM, picture, f"{args.name} has no emulated GPUs")


async def _picture(api: Api, kind: str, name: str, namespace: str) -> Picture | None:
    """Raises ClusterError if there is neither such a node nor such a pod."""
    if kind != "pod":
        try:
            await api.get(NODE, name)
            return _of_node(await nodes_with_gpus(api, name), name)
        except NotThereError as error:
            if kind:
                raise ClusterError(f"there is no node {name}; `kubectl emugpu top` lists those with GPUs") from error
    try:
        pod = await api.get(POD, name, namespace)
    except NotThereError as error:
        nor = "" if kind else f"there is no node {name}, and "
        raise ClusterError(f"{nor}no pod {name} in namespace {namespace}; -n names another namespace") from error
    node = text_at(object_at(pod, "spec"), "nodeName")
    return _of_pod(await nodes_with_gpus(api, node) if node else [], namespace, name)


def _of_node(nodes: Sequence[NodeView], name: str) -> Picture | None:
    devices = [device for node in nodes for device in node.devices]
    problem = next((node.problem for node in nodes), "")
    if not devices:
        return None
    note = f"memory use and load are not known: {problem}" if problem else ""
    return Picture(tuple(gpu(device, device.now.holders if device.now else ()) for device in devices), note)


def _of_pod(nodes: Sequence[NodeView], namespace: str, name: str) -> Picture | None:
    """Raises ClusterError if its node's manager doesn't report the holders of devices."""
    problem = next((node.problem for node in nodes), "")
    if problem:
        raise ClusterError(f"which GPUs pod {name} holds is not known: {problem}")
    found = []
    for device in (device for node in nodes for device in node.devices):
        holders = device.now.holders if device.now else ()
        own = [holder for holder in holders if (holder.namespace, holder.pod) == (namespace, name)]
        if own:
            found.append(gpu(device, own))
    asked = sum(pod.gpus for node in nodes for pod in node.pods if (pod.namespace, pod.name) == (namespace, name))
    if not found and not asked:
        return None
    note = "" if found else f"pod {name} asked for {asked}, but none of its processes has attached to a GPU yet"
    return Picture(counted(tuple(found)), note)


def gpu(device: DeviceView, holders: Sequence[Holder]) -> Gpu:
    """The device with these of its processes."""
    now = device.now
    return Gpu(
        index=device.index,
        name=device.gpu_type,
        uuid=device.uuid,
        memory_bytes=device.memory_bytes,
        used_bytes=None if now is None else now.used_bytes,
        utilisation=None if now is None else now.utilisation,
        healthy=device.healthy if now is None else device.healthy and now.healthy,
        processes=tuple(_process(holder) for holder in holders),
        mig_gpu=Whole(*device.mig_gpu) if device.mig_gpu else None,
    )


def _process(holder: Holder) -> Process:
    words = [word for word in (holder.namespace, holder.pod, holder.container) if word]
    return Process(None, "/".join(words) or "?", holder.used_bytes)
