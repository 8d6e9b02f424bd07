"""`emugpu scheduler`: schedule the EmuJobs of a Kubernetes cluster by one of the policies.

It takes the EmuJobs that name it (spec.scheduler.name), and starts and stops them as the policy plans: the same policies, and
the same loop, as in `emugpu compare`. Ended by a signal, it leaves what runs alone; started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from emulator_runtime.domain.errors import InputError
from operators.objects.names import SCHEDULER_ACTUATORS

if TYPE_CHECKING:
    from operators.scheduling.track.tracked_jobs import Until
    from scheduler_sims.interface.costs import ClusterCosts

DEFAULT_DECIDE_EVERY_S = 0.05


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `scheduler` to the front door's commands."""
    parser = subparsers.add_parser(
        "scheduler",
        help="schedule EmuJobs on Kubernetes by a policy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--policy",
        required=True,
        metavar="NAME",
        help="a policy (see `emugpu policies`), with options as las:threshold_s=300, or your own as my_policy.py:MyPolicy",
    )
    parser.add_argument(
        "--name", default="", help="what EmuJobs say in spec.scheduler.name (default: the policy's name)"
    )
    _add_where(parser)
    _add_how(parser)
    out = parser.add_argument_group("output")
    out.add_argument("--explain", action="store_true", help="print the policy's reasons on stderr")
    out.add_argument("--json", action="store_true", help="print a line of JSON when it is ready, and one per decision")
    out.add_argument(
        "--metrics-port", type=int, default=0, metavar="PORT", help="serve /metrics there (default: don't)"
    )
    until = parser.add_argument_group("experiments")
    until.add_argument("--until-done", metavar="LABEL=VALUE", help="end when --jobs EmuJobs with this label have ended")
    until.add_argument("--jobs", type=int, metavar="N", help="how many, with --until-done")
    until.add_argument(
        "--epoch", metavar="TIME", help="the time (RFC 3339) that policies take for 0 (default: the first start's)"
    )
    parser.set_defaults(run=run)


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("which jobs")
    where.add_argument("--namespace", default="", metavar="N", help="only the EmuJobs of this namespace (default: all)")
    where.add_argument(
        "--lease-namespace",
        default="",
        metavar="N",
        help="where its lease and its memory are; of several with one name and one place one acts "
        "(default: --namespace, else emugpu-system)",
    )
    where.add_argument(
        "--identity",
        default="",
        metavar="NAME",
        help="holder of the lease (default: a unique name). A supervisor that starts one process at a time gives each the same "
        "name, so that the next one needn't wait for the lease of a killed one to expire",
    )
    where.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="only those with this label; may be repeated",
    )
    where.add_argument(
        "--actuator",
        action="append",
        default=[],
        choices=SCHEDULER_ACTUATORS,
        help="only those with this actuator; may be repeated (default: any)",
    )
    where.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="the cluster (default: $KUBECONFIG, or the pod's own)"
    )
    where.add_argument("--context", default="", help="context of the kubeconfig (default: the current one)")


def _add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how")
    how.add_argument(
        "--estimates",
        default="oracle",
        metavar="KIND",
        help="what the policy knows of run times: oracle, error:SIGMA (such as error:0.2) or none (default oracle)",
    )
    how.add_argument("--seed", type=int, default=0, help="seed of the estimates' errors (default 0)")
    how.add_argument("--profiles", type=Path, metavar="FILE.json", help="your own profiles, beside the bundled ones")
    how.add_argument(
        "--decide-every",
        type=float,
        metavar="S",
        help=f"what happens within so many seconds is decided together (default {DEFAULT_DECIDE_EVERY_S:g}, or the costs')",
    )
    how.add_argument("--no-predictions", action="store_true", help="don't predict the JCT of submitted jobs")
    how.add_argument(
        "--cluster-costs",
        type=Path,
        metavar="CLUSTER.yaml",
        help="what starts and stops cost here, which policies see: `costs` of a cluster file",
    )


def run(args: argparse.Namespace) -> int:
    """0: ended by a signal or as --until-done says, 1: another scheduler of this name took over. Raises errors of the tree."""
    from operators.scheduling.names import check_name, check_namespace
    from operators.scheduling.options import Options, parse_labels
    from operators.scheduling.program import Program

    options = Options(
        policy=args.policy,
        name=check_name(args.name, "--name") if args.name else "",
        namespace=check_namespace(args.namespace, "--namespace"),
        lease_namespace=check_namespace(args.lease_namespace, "--lease-namespace"),
        identity=args.identity,
        labels=parse_labels(args.label, "--label"),
        actuators=tuple(args.actuator),
        kubeconfig=args.kubeconfig,
        context=args.context,
        costs=_costs(args.cluster_costs, args.decide_every),
        estimates=args.estimates,
        seed=args.seed,
        profiles=args.profiles,
        explain=args.explain,
        json=args.json,
        metrics_port=_port(args.metrics_port),
        until=_until(args.until_done, args.jobs),
        epoch_ns=_epoch_ns(args.epoch),
        predictions=not args.no_predictions,
    )
    out = sys.stdout  # now: what a policy prints goes elsewhere later

    def print_line(line: str) -> None:
        out.write(f"{line}\n")  # one write: two threads print
        out.flush()

    return Program(options, print_line, _say).run()


def _say(text: str) -> None:
    sys.stderr.write(f"scheduler: {text}\n")
    sys.stderr.flush()


def _costs(path: Path | None, decide_every_s: float | None) -> ClusterCosts:
    from dataclasses import replace

    from scheduler_sims.inputs.cluster_file import load_cluster
    from scheduler_sims.interface.costs import ClusterCosts

    costs = load_cluster(path).costs if path is not None else ClusterCosts(coalesce_s=DEFAULT_DECIDE_EVERY_S)
    if decide_every_s is None:
        return costs
    if not 0 <= decide_every_s <= 3600:
        raise InputError("--decide-every", f"must be from 0 to 3600 seconds, not {decide_every_s:g}")
    return replace(costs, coalesce_s=decide_every_s)


def _port(port: int) -> int:
    if not 0 <= port <= 65535:
        raise InputError("--metrics-port", f"must be from 1 to 65535 (0: off), not {port}")
    return port


def _until(text: str | None, jobs: int | None) -> Until | None:
    from operators.scheduling.options import parse_labels
    from operators.scheduling.track.tracked_jobs import Until

    if (text is None) != (jobs is None):
        raise InputError("--until-done", "say both, --until-done LABEL=VALUE and --jobs N")
    if text is None or jobs is None:
        return None
    if jobs < 1:
        raise InputError("--jobs", f"must be at least 1, not {jobs}")
    ((label, value),) = parse_labels([text], "--until-done").items()
    return Until(label, value, jobs)


def _epoch_ns(text: str | None) -> int | None:
    from operators.kube.timestamps import ns_of

    if text is None:
        return None
    at_ns = ns_of(text)
    if at_ns is None:
        raise InputError("--epoch", f"{text!r} is no time; write it as 2026-01-02T03:04:05.678Z")
    return at_ns
