"""Options that several commands share; as with kubectl, those of the connection may stand before or after the command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emugpu.kubectl.cluster import Cluster
from emulator_runtime.command_line import OneLineParser
from emulator_runtime.domain.errors import InputError
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection as chosen_connection

Connect = Callable[[argparse.Namespace], Cluster]
EVERY_S = 2.0
DEFAULTS: dict[str, Any] = {"kubeconfig": None, "context": "", "namespace": ""}


def connection() -> OneLineParser:
    """--kubeconfig, --context and --namespace; to be a parent of the program and of each command."""
    parser = OneLineParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("which cluster")
    group.add_argument("--kubeconfig", type=Path, metavar="FILE", help="instead of KUBECONFIG and ~/.kube/config")
    group.add_argument("--context", metavar="NAME", help="a context of it (default: the current one)")
    group.add_argument("-n", "--namespace", metavar="NAME", help="default: the context's")
    return parser


def add_everywhere(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces")


def add_output(parser: argparse.ArgumentParser, *forms: str) -> None:
    default = "default: a table"
    parser.add_argument("-o", "--output", choices=forms, default="", metavar="|".join(forms), help=default)


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="repeat until Ctrl-C")
    seconds = f"with --watch: the interval in seconds (default {EVERY_S:g})"
    parser.add_argument("--every", type=float, default=EVERY_S, metavar="S", help=seconds)


def add_selector(parser: argparse.ArgumentParser) -> None:
    selector = "only EmuJobs with these labels, such as emugpu.dev/experiment=a7,team!=ops"
    parser.add_argument("-l", "--selector", default="", metavar="SELECTOR", help=selector)


def every_s(args: argparse.Namespace) -> float:
    """Raises InputError for an interval that would overload the API server."""
    if not 0.2 <= args.every <= 86400:
        raise InputError("--every", f"must be from 0.2 to 86400 seconds, not {args.every:g}")
    return float(args.every)


def scope(args: argparse.Namespace, cluster: Cluster) -> str:
    """The namespace to read, `*` for all."""
    return "*" if args.all_namespaces else cluster.namespace


def connect(args: argparse.Namespace) -> Cluster:
    """Raises InputError or ClusterError if no cluster is configured."""
    found = chosen_connection(args.kubeconfig, args.context, args.namespace)
    return Cluster(KubeApi(found), found.namespace)


def cluster_of(args: argparse.Namespace) -> Cluster:
    """The cluster of the arguments, connected as the program connects."""
    found: Cluster = args.connect(args)
    return found
