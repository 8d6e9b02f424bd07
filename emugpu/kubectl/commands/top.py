"""`kubectl emugpu top`: emulated GPUs now. By node: type, allocated of allocatable, load, memory and the pods that requested
them; by device: one line each, with its holders; by job: the running EmuJobs and the load of their devices.

Load is the busy share of the last second. Load and memory come from the nodes' managers, allocation from the pods' limits.
"""

from __future__ import annotations

import argparse
import asyncio

from emugpu.kubectl import options, output
from emugpu.kubectl.cluster import Cluster
from emugpu.kubectl.job_views import JobView, jobs_in
from emugpu.kubectl.node_views import NodeView, nodes_with_gpus
from emugpu.kubectl.output import Answer
from emugpu.kubectl.top_tables import devices_answer, jobs_answer, nodes_answer
from operators.kube.api import Api

VIEWS = ("nodes", "devices", "jobs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=VIEWS, default="nodes", help="default: nodes")
    options.add_everywhere(parser)
    options.add_output(parser, "wide", "json", "csv")
    options.add_watch(parser)


def run(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    every_s = options.every_s(args)
    with options.cluster_of(args) as cluster:

        def look() -> Answer:
            return _answer(cluster, args)

        if args.watch:
            return output.watch(look, args.output, every_s)
        output.show(look(), args.output)
    return 0


def _answer(cluster: Cluster, args: argparse.Namespace) -> Answer:
    wide = args.output == "wide"
    if args.what == "nodes":
        return nodes_answer(cluster.ask(nodes_with_gpus), wide=wide)
    if args.what == "devices":
        return devices_answer(cluster.ask(nodes_with_gpus), wide=wide)
    namespace = options.scope(args, cluster)

    async def both(api: Api) -> tuple[list[JobView], list[NodeView]]:
        return await asyncio.gather(jobs_in(api, namespace), nodes_with_gpus(api))

    return jobs_answer(*cluster.ask(both), namespace, cluster.now_s())
