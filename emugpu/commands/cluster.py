"""`emugpu cluster`: a Kubernetes cluster with emulated GPUs on this machine (kind), or the chart on an existing cluster."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from rich import box
from rich.table import Table

from cluster_harness.cache import Cache, default_root
from cluster_harness.cluster import Clusters
from cluster_harness.product.readiness import gpus_of
from cluster_harness.product.status import ClusterReport, report
from cluster_harness.request.chart_values import helm_arguments
from cluster_harness.request.flags import (
    CPUS_PER_GPU,
    DEFAULT_GPU_TYPE,
    DEFAULT_GPUS,
    DEFAULT_NODES,
    MEMORY_GIB_PER_GPU,
    REAL,
    plan,
    with_emulated_resources,
)
from cluster_harness.request.spec import ClusterSpec, described, parse_name
from cluster_harness.steps import PlainSteps, Steps
from cluster_harness.up import Request
from emugpu.terminal.cluster_progress import TerminalSteps
from emugpu.terminal.console import result_console
from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns

_EPILOG = """examples:
  emugpu cluster up                                      2 nodes with 8 A100 each
  emugpu cluster up --nodes 8 --gpus 8 --gpu-type H100-SXM5-80GB
  emugpu cluster up --pool old=4xV100:2 --pool new=8xA100:1 --cpu-nodes 2
  emugpu cluster up --nodes 4 --emulated-cpus 24 --emulated-memory 500Gi
  emugpu cluster up --kubeconfig ~/.kube/config --context lab --image registry.lab/emugpu:1
  export KUBECONFIG=$(emugpu cluster kubeconfig)
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `cluster` with its verbs to the front door's commands."""
    parser = subparsers.add_parser(
        "cluster",
        help="a Kubernetes cluster with emulated GPUs",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_up(verbs)
    status = _add_verb(
        verbs, "status", "show nodes, GPUs and emugpu's own pods; exit status 1: something is missing", run_status
    )
    status.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_verb(verbs, "down", "delete the cluster (of an existing one: what `up` added to it)", run_down)
    _add_verb(verbs, "kubeconfig", "print the path of its kubeconfig", run_kubeconfig)
    load = _add_verb(verbs, "load", "load an image of the local engine, or an archive, onto all nodes", run_load)
    load.add_argument(
        "image",
        metavar="IMAGE",
        help="name:tag, the path of a `docker save` archive, or emugpu-scheduler, which is built from this checkout",
    )


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--name", default="emugpu", help="the cluster (default: emugpu)")
    parser.set_defaults(run=run)
    return parser


def _add_up(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = _add_verb(verbs, "up", "create the cluster, or change it to what the flags describe", run_up)
    nodes = up.add_argument_group("nodes")
    nodes.add_argument("--nodes", type=int, metavar="N", help=f"worker nodes with GPUs (default: {DEFAULT_NODES})")
    nodes.add_argument("--gpus", type=int, metavar="N", help=f"GPUs on each of them (default: {DEFAULT_GPUS})")
    gpu_type = f"their type; see `emugpu gpus` (default: {DEFAULT_GPU_TYPE})"
    nodes.add_argument("--gpu-type", metavar="TYPE", help=gpu_type)
    pool = "a pool of its own: 2 nodes with 4 V100 each (repeatable)"
    nodes.add_argument("--pool", action="append", default=[], metavar="NAME=4xV100:2", help=pool)
    mixed = "4 nodes with 1 V100 each (repeatable; a pool without a name)"
    nodes.add_argument("--node-gpus", action="append", default=[], metavar="4x1xV100", help=mixed)
    nodes.add_argument("--cpu-nodes", type=int, default=0, metavar="N", help="nodes without GPUs (default: 0)")
    cpus = (
        f"CPUs that every node emulates for EmuJobs to divide, or {REAL}: those of this machine "
        f"(default: {CPUS_PER_GPU} for each GPU of a node; nodes without GPUs keep their own)"
    )
    nodes.add_argument("--emulated-cpus", default="", metavar="N", help=cpus)
    memory = (
        f"the same for memory (default: {MEMORY_GIB_PER_GPU}Gi for each GPU); with either flag, nodes without GPUs run "
        "EmuJobs that need no GPU"
    )
    nodes.add_argument("--emulated-memory", default="", metavar="SIZE", help=memory)
    reshape = "change GPUs and pools of an existing cluster; pods keep devices of the same type and index"
    nodes.add_argument("--reshape", action="store_true", help=reshape)
    where = up.add_argument_group("an existing cluster")
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="install there; needs --image")
    where.add_argument("--context", default="", help="a context of that file, or of the file that kubectl uses")
    what = up.add_argument_group("what is installed")
    image = "used instead of one built from this checkout; with --kubeconfig one that the nodes can pull (as they pull redis:7)"
    what.add_argument("--image", default="", metavar="NAME:TAG", help=image)
    what.add_argument("--chart", type=Path, metavar="DIRECTORY", help="instead of this checkout's charts/emugpu")
    what.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a value of the chart (repeatable)"
    )
    what.add_argument("--no-chart", action="store_true", help="only nodes; an installed chart stays as it is")
    wait = "return when all GPUs can be requested (default: yes)"
    up.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True, help=wait)


def run_up(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    for flag, given in (("--chart", args.chart), ("--set", args.set), ("--reshape", args.reshape)):
        if args.no_chart and given:
            raise InputError(flag, "is about the chart, which --no-chart leaves out; give one of the two")
    spec = plan(
        args.name,
        nodes=args.nodes,
        gpus=args.gpus,
        gpu_type=args.gpu_type,
        pools=args.pool,
        node_gpus=args.node_gpus,
        cpu_nodes=args.cpu_nodes,
    )
    spec = with_emulated_resources(spec, args.emulated_cpus, args.emulated_memory)
    kubeconfig = args.kubeconfig or (_file_with(args.context) if args.context else None)
    request = Request(
        spec,
        kubeconfig=kubeconfig,
        context=args.context,
        image=args.image,
        helm_arguments=helm_arguments(args.set, existing=kubeconfig is not None),
        with_chart=not args.no_chart,
        wait=args.wait,
        reshape=args.reshape,
    )
    if args.chart:
        request = replace(request, chart=args.chart)
    started_ns = monotonic_ns()
    clusters = _clusters()
    state = clusters.up(request)
    took_s = (monotonic_ns() - started_ns) / 1e9
    gpus = f"{spec.gpus} GPUs" if request.with_chart else _offered(clusters, spec.name)
    print(f"cluster {spec.name}: {spec.workers} nodes, {gpus}, {took_s:.0f} s")
    for line in _emulated_machines(spec) if request.with_chart else ():
        print(f"  {line}")
    print(f"  export KUBECONFIG={state.kubeconfig}")
    return 0


def _emulated_machines(spec: ClusterSpec) -> list[str]:
    """A line for each pool: its nodes and what each of them emulates."""
    return [f"pool {pool.name}: {described(pool)}" for pool in spec.pools]


def _offered(clusters: Clusters, name: str) -> str:
    """The GPUs that nodes offer without our chart having been installed now."""
    count = sum(sum(gpus_of(node).values()) for node in clusters.kubectl(name).nodes())
    return f"which offer {count} GPUs now (--no-chart)"


def run_status(args: argparse.Namespace) -> int:
    """0: everything is ready, 1: not yet. Raises errors of the tree."""
    clusters = _clusters()
    state = clusters.state(parse_name(args.name))
    found = report(state, clusters.kubectl(args.name))
    if args.json:
        print(json.dumps({**asdict(found), "healthy": found.healthy}, indent=2))
    else:
        _print_report(found)
    return 0 if found.healthy else 1


def run_down(args: argparse.Namespace) -> int:
    """0, also if there was no cluster. Raises errors of the tree."""
    _clusters().down(parse_name(args.name))
    return 0


def run_kubeconfig(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    print(_clusters().state(parse_name(args.name)).kubeconfig)
    return 0


def run_load(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    _clusters().load(parse_name(args.name), args.image)
    return 0


def _clusters() -> Clusters:
    """Progress goes to stderr; stdout has only results."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    steps: Steps = TerminalSteps(monotonic_ns) if terminal else PlainSteps(_say, monotonic_ns)
    return Clusters(Cache(default_root(), steps.say), steps, dict(os.environ))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_report(found: ClusterReport) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("Node", "Ready", "Pool", "GPUs (in use / allocatable)"):
        table.add_column(heading)
    for node in found.nodes:
        gpus = ", ".join(f"{name} {node.used.get(name, 0)} / {count}" for name, count in node.gpus.items())
        table.add_row(node.name, "yes" if node.ready else "NO", node.pool or "-", gpus or "-")
    console = result_console()
    console.print(f"cluster {found.name} ({found.way}), kubeconfig {found.kubeconfig}", soft_wrap=True)
    console.print(table)
    for name, (ready, wanted) in found.programs.items():
        if ready < wanted:
            console.print(f"{name}: {ready} of {wanted} containers are ready")
    if not found.programs:
        console.print("emugpu isn't installed on it")
    elif found.missing:
        console.print(f"missing: {found.missing}")


def _file_with(context: str) -> Path:
    """PyYAML is not needed by any other choice of cluster."""
    from operators.kube.kubeconfig import file_with

    return file_with(context)
