"""Determines from options and variables which rank of its job this pod is. Contradictory options are refused.

An option without effect is an error: a user who gives --rendezvous expects several pods. A variable without effect is none:
one template may set the variables for jobs of any size, and a job whose size is a variable may have a single pod.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.workloads.command.arguments import whole
from emulator_runtime.workloads.pod import NODES_VARIABLE, RANK_VARIABLES, RENDEZVOUS_VARIABLE, whole_variable
from emulator_runtime.workloads.ranks.options import MAX_NODES, parse_address

_OF_SEVERAL = ("--rank", "--rendezvous", "--rendezvous-timeout-s", "--step-timeout-s", "--network-gbps")


@dataclass(frozen=True, slots=True)
class PodPlace:
    """This pod is `rank` of `nodes`. `rendezvous`: host and port of rank 0; None for a job with one pod."""

    nodes: int = 1
    rank: int = 0
    rendezvous: tuple[str, int] | None = None


def pod_place(args: argparse.Namespace, environ: Mapping[str, str]) -> PodPlace:
    """The rank of this pod. Raises InputError naming the option or variable that is wrong or missing."""
    nodes = _whole(args.nodes, ("--nodes", NODES_VARIABLE), environ, least=1, most=MAX_NODES)
    if nodes is None or nodes == 1:
        _must_be_alone(args, by_variable=args.nodes is None and nodes == 1)
        return PodPlace(rank=whole(args.rank, "--rank", 0, most=0))
    rank = _whole(args.rank, ("--rank", *RANK_VARIABLES), environ, least=0, most=nodes - 1)
    address = args.rendezvous or environ.get(RENDEZVOUS_VARIABLE, "")
    if not address:
        raise InputError(
            "--rendezvous", f"is missing: {nodes} nodes need HOST:PORT of rank 0 (or {RENDEZVOUS_VARIABLE})"
        )
    if rank is None:
        fix = f"give it, or {RANK_VARIABLES[0]}, or make the Job Indexed"
        raise InputError("--rank", f"is missing: each of {nodes} nodes needs a number of its own; {fix}")
    return PodPlace(nodes, rank, parse_address(address, "--rendezvous" if args.rendezvous else RENDEZVOUS_VARIABLE))


def _whole(
    given: int | None, names: tuple[str, ...], environ: Mapping[str, str], *, least: int, most: int
) -> int | None:
    """The option, or the first variable that is set, or None. `names`: the name of the option, then the variables."""
    variable = next((name for name in names[1:] if environ.get(name)), "")
    if given is not None or not variable:
        return None if given is None else whole(given, names[0], 0, least=least, most=most)
    return whole(whole_variable(environ, (variable,), 0), variable, 0, least=least, most=most)


def _must_be_alone(args: argparse.Namespace, *, by_variable: bool) -> None:
    """Refuse options for several pods. `--rank 0 --nodes 1` is allowed, as it isn't a contradiction."""
    for option in _OF_SEVERAL:
        given = getattr(args, option[2:].replace("-", "_"))
        if given in (None, "") or by_variable or (option == "--rank" and args.nodes == 1):
            continue
        if args.nodes is None:
            raise InputError(option, f"is for several pods; say how many with --nodes (or {NODES_VARIABLE})")
        raise InputError(option, "is for several pods, and --nodes is 1; leave it out, or correct --nodes")
