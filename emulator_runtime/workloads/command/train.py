"""`emugpu train`: a training job on the emulated GPUs of this container, for Kubernetes Jobs and for trying things out.

    emugpu train --model resnet50 --batch-size 64 --steps 200
    emugpu train --step-time-s 0.1 --memory 10GiB --steps 200

It needs only Python's standard library and this package of emugpu: with nothing but the node's copy of the library, the same
command is `python3 -m emulator_runtime.workloads train ...`. If it runs again, in the same pod or in a new pod of the same
Job, it continues after the last finished step. A container that requests only emugpu.dev/host has no GPU; there,
--step-time-s trains on emulated CPUs. With several GPUs in the container, it emulates DataParallel in this process.
An elastic job counts --samples instead of --steps: each of its runs may have another number of GPUs, and another batch size.
Several pods (an Indexed Job with a headless Service) need --nodes, --rank and --rendezvous, or the variables EMUGPU_NODES,
JOB_COMPLETION_INDEX and EMUGPU_RENDEZVOUS. A step counts when all pods have done it. If one pod fails, the others end, so
that the Job starts them all again.

exit codes: 0 after the last step, 1 if a retry may help (out of memory, device lost, another rank failed), 64 for a
wrong command, 143 after SIGTERM or a stop by the manager or another rank, 130 after Ctrl-C, 141 if the reader of the output
closed it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from emulator_runtime.command_line import OneLineParser, piped
from emulator_runtime.domain.errors import (
    BeyondProfileError,
    DeviceLostError,
    EmuGpuError,
    InputError,
    OutOfMemoryError,
)
from emulator_runtime.exit_codes import EXIT_STOPPED, EXIT_WRONG_IN_POD
from emulator_runtime.ipc.client import ManagerClient, Patience
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import prepare_waiting, shorten_slice
from emulator_runtime.workloads.command.arguments import add_arguments, chosen, number, profiles_of, request_of
from emulator_runtime.workloads.command.pod_place import PodPlace, pod_place
from emulator_runtime.workloads.command.report import TrainReport, TrainSummary
from emulator_runtime.workloads.pod import pod_access
from emulator_runtime.workloads.pod_training import Dependencies, PodTraining
from emulator_runtime.workloads.ranks.group import Alone, Group
from emulator_runtime.workloads.ranks.leader import Leader
from emulator_runtime.workloads.ranks.member import Member
from emulator_runtime.workloads.ranks.options import BARRIER_TIMEOUT_S, JOIN_TIMEOUT_S, RankOptions
from emulator_runtime.workloads.records import StepLog
from emulator_runtime.workloads.step_costs.request import TrainRequest
from emulator_runtime.workloads.stopping import StopSwitch

EXIT_FAILED = 1


def main(argv: list[str]) -> int:
    """`python3 -m emulator_runtime.workloads train ...`; errors are one line on stderr, as in the `emugpu` command."""
    parser = OneLineParser(
        prog="python3 -m emulator_runtime.workloads train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return piped("emugpu", lambda: _reporting(lambda: _trained(parser.parse_args(argv))))


def run(args: argparse.Namespace) -> int:
    """Train and return the exit code, see the module docstring. A wrong command is one line on stderr."""
    return _reporting(lambda: _trained(args))


def _reporting(train: Callable[[], int]) -> int:
    try:
        return train()
    except EmuGpuError as error:
        print(f"emugpu: {error}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"emugpu: {error.filename or 'this machine'}: {error.strerror}", file=sys.stderr)
    return EXIT_WRONG_IN_POD


def _trained(args: argparse.Namespace) -> int:
    stop = StopSwitch()
    stop.install()
    prepare_waiting()
    shorten_slice()
    request = request_of(chosen(args, os.environ))
    place = pod_place(args, os.environ)
    access = pod_access(os.environ)
    profiles = profiles_of(args, os.environ)
    progress = sys.stderr if args.json else sys.stdout
    log = StepLog(args.log_steps) if args.log_steps else None
    report = TrainReport(request, progress, prefix=f"rank {place.rank}: " if place.rendezvous else "", log=log)
    group = _group(args, request, stop, place, report)
    training = PodTraining(
        request,
        Dependencies(
            connect=lambda patience_s: ManagerClient(
                access.manager, access.token, patience=Patience(patience_s), follow_host=request.uses_host
            ),
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
        pace_s=training.pace_s,
        unit=request.unit,
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
    """The error message, beginning with PyTorch's name of the error, which users and log filters recognise."""
    if isinstance(error, OutOfMemoryError):
        return f"torch.cuda.OutOfMemoryError: CUDA out of memory (emulated): {error}"
    if isinstance(error, DeviceLostError):
        return f"CUDA error (emulated): the device is lost: {error}"
    return str(error)


def _group(
    args: argparse.Namespace, request: TrainRequest, stop: StopSwitch, place: PodPlace, report: TrainReport
) -> Group:
    """The group of this rank. Raises InputError if rank 0 can't listen."""
    if place.rendezvous is None:
        return Alone()
    host, port = place.rendezvous
    options = RankOptions(
        nodes=place.nodes,
        rank=place.rank,
        host=host,
        port=port,
        work=request.work,
        join_timeout_s=number(args.rendezvous_timeout_s, "--rendezvous-timeout-s", JOIN_TIMEOUT_S, above=0.0),
        barrier_timeout_s=number(args.step_timeout_s, "--step-timeout-s", BARRIER_TIMEOUT_S, above=0.0),
        check_joining=lambda: stop.check(0.0),
        check_waiting=stop.check,
        notify=report.tell,
    )
    return Member(options) if place.rank else Leader(options)
