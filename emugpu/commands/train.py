"""`emugpu train`: a training job on the emulated GPUs of this container, for Kubernetes Jobs and for trying things out.

    emugpu train --model resnet50 --batch-size 64 --steps 200
    emugpu train --step-time-s 0.1 --memory 10GiB --steps 200

It needs only Python's standard library. Run again, in the same pod or a new pod of the same Job, it goes on at the step
after the last one that was done. Several GPUs in the container: DataParallel in this process. Several pods (an Indexed
Job with a headless Service): --nodes, --rank and --rendezvous, or the variables EMUGPU_NODES, JOB_COMPLETION_INDEX and
EMUGPU_RENDEZVOUS; a step counts when all pods have done it, and a pod that dies ends the others, so that the Job starts
them all again.

exit codes: 0 after the last step, 1 where a retry may help (out of memory, device lost, another rank gone), 2 where the
command is wrong, 143 after SIGTERM, 130 after Ctrl-C; a stop by the manager or another rank is 143 too.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from emulator_runtime.domain.errors import (
    BeyondProfileError,
    DeviceLostError,
    EmuGpuError,
    InputError,
    OutOfMemoryError,
)
from emulator_runtime.domain.units import MAX_SECONDS
from emulator_runtime.ipc.client import ManagerClient
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import prepare_waiting, shorten_slice
from emulator_runtime.workloads.communication import DEFAULT_NETWORK_GBPS
from emulator_runtime.workloads.group import Alone, Group
from emulator_runtime.workloads.leader import Leader
from emulator_runtime.workloads.member import Member
from emulator_runtime.workloads.pod import (
    NODES_VARIABLE,
    RANK_VARIABLES,
    RENDEZVOUS_VARIABLE,
    pod_access,
    whole_variable,
)
from emulator_runtime.workloads.pod_training import PodTraining, Surroundings
from emulator_runtime.workloads.rank_options import MAX_NODES, RankOptions, parse_address
from emulator_runtime.workloads.records import StepLog
from emulator_runtime.workloads.request import PARALLEL, TrainRequest
from emulator_runtime.workloads.sizes import parse_bytes
from emulator_runtime.workloads.stopping import StopSwitch
from emulator_runtime.workloads.train_report import TrainReport, TrainSummary

EXIT_FAILED = 1
EXIT_STOPPED = 128 + signal.SIGTERM
_MAX_STEPS = 2**40


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train` to the front door's commands."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on the emulated GPUs of this container",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to train")
    what.add_argument("--model", default="", help="a profiled model, such as resnet50 (emugpu profile list)")
    what.add_argument("--batch-size", type=int, metavar="N", help="samples of one step on all GPUs together")
    what.add_argument("--step-time-s", type=float, metavar="S", help="work without a profile: seconds of one step")
    what.add_argument("--memory", metavar="SIZE", help="with --step-time-s: memory on each GPU, such as 10GiB")
    what.add_argument("--steps", type=int, required=True, metavar="N", help="steps of the whole job, over all its runs")
    what.add_argument("--profiles", type=Path, metavar="FILE.json", help="your own profiles, beside the bundled ones")
    what.add_argument("--extrapolate", action="store_true", help="allow batch sizes beyond the measured ones")
    what.add_argument(
        "--input-cpu-s", type=float, default=0.0, metavar="S", help="CPU seconds to prepare the input of one step"
    )
    what.add_argument(
        "--cpus", type=float, default=1.0, metavar="N", help="emulated CPUs that prepare input (default 1)"
    )
    _add_ranks(parser.add_argument_group("several GPUs and pods"))
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON object on stdout at the end; progress on stderr")
    output.add_argument("--log-steps", metavar="FILE", help="append a line per step: step,start_ns,end_ns,seen_ns")
    parser.set_defaults(run=run)


def _add_ranks(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--parallel", choices=PARALLEL, help="dp: exchange gradients after the backward pass (default on "
                       "one node); ddp: while it runs (default on several)")  # fmt: skip
    group.add_argument("--gradient-bytes", metavar="SIZE", help="gradients to exchange (default: as the profile tells)")
    group.add_argument("--nodes", type=int, metavar="N", help=f"pods of this job (default ${NODES_VARIABLE}, else 1)")
    group.add_argument(
        "--rank", type=int, metavar="N", help=f"this pod's number (default ${', $'.join(RANK_VARIABLES)})"
    )
    group.add_argument(
        "--rendezvous", metavar="HOST:PORT", help=f"where rank 0 listens (default ${RENDEZVOUS_VARIABLE})"
    )
    group.add_argument(
        "--rendezvous-timeout-s", type=float, default=600.0, metavar="S", help="wait for other pods (600)"
    )
    group.add_argument(
        "--step-timeout-s", type=float, default=1800.0, metavar="S", help="wait for a step of others (1800)"
    )
    group.add_argument(
        "--network-gbps",
        type=float,
        default=DEFAULT_NETWORK_GBPS,
        metavar="G",
        help="emulated network between nodes, Gbit/s each way (default 10)",
    )


def run(args: argparse.Namespace) -> int:
    """Train; the module's text says what the exit codes mean. Raises InputError for a wrong command."""
    stop = StopSwitch()
    stop.install()
    prepare_waiting()
    shorten_slice()
    request = request_of(args)
    access = pod_access(os.environ)
    profiles = ProfileTable.bundled().with_file(args.profiles) if args.profiles else ProfileTable.bundled()
    progress = sys.stderr if args.json else sys.stdout
    log = StepLog(args.log_steps) if args.log_steps else None
    nodes = _whole(args.nodes, "--nodes", whole_variable(os.environ, (NODES_VARIABLE,), 1), least=1, most=MAX_NODES)
    rank = _whole(
        args.rank, "--rank", whole_variable(os.environ, RANK_VARIABLES, 0) if nodes > 1 else 0, most=nodes - 1
    )
    report = TrainReport(request, progress, prefix=f"rank {rank}: " if nodes > 1 else "", log=log)
    group = _group(args, request, stop, (nodes, rank), report)
    training = PodTraining(
        request,
        Surroundings(
            connect=lambda patience_s: ManagerClient(access.manager, access.token, patience_s=patience_s),
            clock=HostClock.of_host(),
            group=group,
            stop=stop,
            observer=report,
            profiles=profiles,
        ),
    )
    try:
        return _run(args, training, request, stop, report)
    finally:
        if log is not None:
            log.close()


def _run(
    args: argparse.Namespace, training: PodTraining, request: TrainRequest, stop: StopSwitch, report: TrainReport
) -> int:
    status, steps_done, reason = 0, 0, ""
    try:
        outcome = training.run()
        steps_done = outcome.steps_done
        if not outcome.finished:
            status = 128 + stop.signal if stop.asked else EXIT_STOPPED
            reason = _signal_name(stop) or f"{outcome.stopped_by} was told to stop"
    except (InputError, BeyondProfileError):
        report.end_line()
        raise
    except EmuGpuError as error:
        status, reason, steps_done = EXIT_FAILED, _as_framework(error), training.steps_done
    summary = TrainSummary(
        outcome={0: "finished", EXIT_FAILED: "failed"}.get(status, "stopped"),
        steps_done=steps_done,
        steps_run=len(training.seen),
        plan=training.plan,
        seen=training.seen,
        lags=training.lags,
        samples_per_step=request.batch_size,
        reason=reason,
        devices=training.devices,
    )
    report.end_line()
    if status == EXIT_FAILED:
        print(f"emugpu train: {reason}", file=sys.stderr)
    _print_summary(summary, report, sys.stdout if args.json else None)
    return status


def _print_summary(summary: TrainSummary, report: TrainReport, json_out: TextIO | None) -> None:
    if json_out is not None:
        print(json.dumps(summary.to_json()), file=json_out)
    elif summary.outcome != "failed" or summary.steps_run:
        for line in summary.lines():
            report.tell(line)


def _signal_name(stop: StopSwitch) -> str:
    return signal.Signals(stop.signal).name if stop.asked else ""


def _as_framework(error: EmuGpuError) -> str:
    """The error's text, led by the name under which people (and their log filters) know it from PyTorch."""
    if isinstance(error, OutOfMemoryError):
        return f"torch.cuda.OutOfMemoryError: CUDA out of memory (emulated): {error}"
    if isinstance(error, DeviceLostError):
        return f"CUDA error (emulated): the device is lost: {error}"
    return str(error)


def request_of(args: argparse.Namespace) -> TrainRequest:
    """What the arguments ask for. Raises InputError that names the flag."""
    by_model = bool(args.model) or args.batch_size is not None
    by_time = args.step_time_s is not None or args.memory is not None
    if by_model == by_time:
        raise InputError("emugpu train", "give either --model and --batch-size, or --step-time-s and --memory")
    if by_model and not (args.model and args.batch_size is not None):
        raise InputError("emugpu train", "--model and --batch-size belong together")
    if by_time and args.step_time_s is None:
        raise InputError("--memory", "belongs to --step-time-s; a model's memory is in its profile")
    return TrainRequest(
        steps=_whole(args.steps, "--steps", 1, least=1, most=_MAX_STEPS),
        model=args.model,
        batch_size=_whole(args.batch_size, "--batch-size", 0, least=1, most=2**31) if by_model else 0,
        step_time_s=_number(args.step_time_s, "--step-time-s", above=0.0) if by_time else 0.0,
        memory_bytes=parse_bytes(args.memory, "--memory") if args.memory else 0,
        gradient_bytes=parse_bytes(args.gradient_bytes, "--gradient-bytes") if args.gradient_bytes else 0,
        input_cpu_s=_number(args.input_cpu_s, "--input-cpu-s"),
        cpus=_number(args.cpus, "--cpus", above=0.0),
        parallel=args.parallel or "",
        network_gbps=_number(args.network_gbps, "--network-gbps", above=0.0),
        extrapolate=args.extrapolate,
    )


def _group(
    args: argparse.Namespace, request: TrainRequest, stop: StopSwitch, place: tuple[int, int], report: TrainReport
) -> Group:
    """This process among its ranks. Raises InputError where rank 0 can't be found or can't listen."""
    nodes, rank = place
    if nodes == 1:
        return Alone()
    rendezvous = args.rendezvous or os.environ.get(RENDEZVOUS_VARIABLE, "")
    if not rendezvous:
        raise InputError(
            "--rendezvous", f"is missing: {nodes} nodes need HOST:PORT of rank 0 (or {RENDEZVOUS_VARIABLE})"
        )
    host, port = parse_address(rendezvous, "--rendezvous")
    options = RankOptions(
        nodes=nodes,
        rank=rank,
        host=host,
        port=port,
        work=f"{request.title}, {request.steps} steps",
        join_timeout_s=_number(args.rendezvous_timeout_s, "--rendezvous-timeout-s", above=0.0),
        barrier_timeout_s=_number(args.step_timeout_s, "--step-timeout-s", above=0.0),
        check_joining=lambda: stop.check(0.0),
        check_waiting=stop.check,
        told=report.tell,
    )
    return Member(options) if rank else Leader(options)


def _whole(value: int | None, place: str, default: int, *, least: int = 0, most: int) -> int:
    number = default if value is None else value
    if not least <= number <= most:
        raise InputError(place, f"must be from {least} to {most}, not {number}")
    return number


def _number(value: float, place: str, *, above: float | None = None) -> float:
    if not (0.0 if above is None else above) <= value <= MAX_SECONDS or value == above:
        raise InputError(
            place, f"must be {'>=' if above is None else '>'} 0 and at most {MAX_SECONDS:g}, not {value:g}"
        )
    return value
