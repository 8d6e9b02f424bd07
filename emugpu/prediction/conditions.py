"""The options of `emugpu predict` that say under which conditions: network, what collectives share, measured kernels."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path

from emugpu.prediction.inputs import yaml_field
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import read_duration_ns
from emulator_runtime.prediction.learned.estimator_file import PUBLISHED
from emulator_runtime.prediction.links import NETWORK_GBPS
from emulator_runtime.prediction.network.topology import Topology, read_topology
from emulator_runtime.prediction.prediction import Conditions

_COUNTS = ("gpus_per_node", "nodes", "nvlink_domain", "nodes_per_rack")
_LATENCIES = ("network_latency", "rack_latency")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Each option of the network comes before what a --topology says of the same."""
    parser.add_argument(
        "--kernel-table",
        type=Path,
        metavar="FILE",
        help="measured times of kernels (`emugpu cuda kernels`), for one --gpu",
    )
    parser.add_argument(
        "--estimator",
        type=Path,
        metavar="FILE",
        help="estimates learned from a real GPU (`emugpu profile import-trace`); `published`: from published times of "
        "training steps on A100, V100, P100, RTX 6000, M40 and K80",
    )
    network = parser.add_argument_group("network", "Without these, ranks are on the nodes on which they were recorded.")
    network.add_argument(
        "--topology", type=Path, metavar="FILE", help="shape of the cluster, in YAML (docs/prediction.md)"
    )
    network.add_argument(
        "--network-gbps", type=float, metavar="N", help=f"network of a node, one way (default: {NETWORK_GBPS:g})"
    )
    network.add_argument("--gpus-per-node", type=int, metavar="N", help="places the ranks anew, node by node")
    network.add_argument("--nodes", type=int, metavar="N", help="places the ranks anew, equally on so many nodes")
    network.add_argument(
        "--nvlink-domain",
        type=int,
        metavar="N",
        help="GPUs that NVLink joins; may span nodes (default: those of a node)",
    )
    network.add_argument("--pcie-only", action="store_true", help="no GPUs are joined by NVLink")
    network.add_argument("--nodes-per-rack", type=int, metavar="N", help="nodes below one switch (default: all)")
    network.add_argument(
        "--oversubscription", type=float, metavar="X", help="what a rack's nodes can send, divided by what the rack can"
    )
    network.add_argument("--network-latency", metavar="TIME", help="of a message between nodes, on top of NCCL's own")
    network.add_argument("--rack-latency", metavar="TIME", help="on top of that between racks")
    network.add_argument(
        "--no-sharing",
        action="store_true",
        help="collectives that run at once don't share the bandwidth of their links",
    )
    network.add_argument(
        "--sm-share",
        type=float,
        default=0.0,
        metavar="X",
        help="part of the compute units that a collective takes from kernels beside it (default: 0)",
    )


def conditions_of(args: argparse.Namespace) -> Conditions:
    """What the options say. Raises InputError, UnknownNameError and OSError."""
    if not 0 <= args.sm_share < 1:
        raise InputError("--sm-share", f"must be a number from 0 to below 1, not {args.sm_share}")
    topology = _topology(args)
    return Conditions(
        NETWORK_GBPS if args.network_gbps is None else args.network_gbps,
        args.kernel_table,
        topology,
        shared_links=not args.no_sharing,
        sm_share=args.sm_share,
        learned=PUBLISHED if args.estimator == Path("published") else args.estimator,
    )


def _topology(args: argparse.Namespace) -> Topology | None:
    """None: as recorded, with the model of the emulated NCCL."""
    changes: dict[str, object] = {}
    if args.network_gbps is not None:
        _check_number("--network-gbps", args.network_gbps)
        changes["network_gbps"] = args.network_gbps
    if args.oversubscription is not None:
        if not (args.oversubscription >= 1 and math.isfinite(args.oversubscription)):
            raise InputError("--oversubscription", f"must be a number from 1 on, not {args.oversubscription}")
        changes["oversubscription"] = args.oversubscription
    for name in _COUNTS:
        value = getattr(args, name)
        if value is not None:
            if value < 1:
                raise InputError(f"--{name.replace('_', '-')}", f"must be 1 or more, not {value}")
            changes[name] = value
    if args.pcie_only:
        if args.nvlink_domain is not None:
            raise InputError("--pcie-only", "and --nvlink-domain contradict each other; give one of them")
        changes["nvlink_domain"] = 1
    for name in _LATENCIES:
        if (text := getattr(args, name)) is not None:
            changes[f"{name}_us"] = _latency_us(f"--{name.replace('_', '-')}", text)
    if args.topology is None and not changes.keys() - {"network_gbps"}:
        return None
    stated = Topology() if args.topology is None else read_topology(yaml_field(args.topology, "topology"))
    return replace(stated, **changes)  # type: ignore[arg-type]  # each has the type of its field


def _check_number(option: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise InputError(option, f"must be a number above 0, not {value}")


def _latency_us(option: str, text: str) -> float:
    time_ns = read_duration_ns(text)
    if time_ns is None:
        raise InputError(option, f"must be a time such as 2us, not {text}")
    return time_ns / 1000
