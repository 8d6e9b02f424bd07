"""`program`: runs a training program of the user's in a pod of an EmuJob, as a run of the job (spec.program).

    python3 -m emulator_runtime.workloads program --steps 300 --model my-model --batch-size 16 -- python train.py --steps 300

It begins the run, starts the command, and reports the run's end: with the command's. What `--model` or `--step-time-s` say is
needed only for the number of steps that a program which --resumes has done when it is stopped.

exit codes: 0 when the command has ended with 0, 64 if it ended with another status (a retry wouldn't help), 1 if a signal
ended it, 143 after SIGTERM or a stop by the manager.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace

from emulator_runtime.command_line import OneLineParser
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns
from emulator_runtime.exit_codes import EXIT_STOPPED, EXIT_WRONG_IN_POD
from emulator_runtime.ipc.client import ManagerClient
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.workloads.command.arguments import add_arguments, profiles_of, request_of
from emulator_runtime.workloads.pod import container_gpu_types, pod_access
from emulator_runtime.workloads.program_run import ProgramRun
from emulator_runtime.workloads.step_costs.request import Layout, plan_step
from emulator_runtime.workloads.stopping import StopNow, StopSwitch

EXIT_FAILED = 1


def main(argv: list[str]) -> int:
    """Errors are one line on stderr."""
    options, separator, words = _divided(argv)
    parser = OneLineParser(
        prog="python3 -m emulator_runtime.workloads program",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--resumes", action="store_true", help="the command goes on from a checkpoint of its own")
    args = parser.parse_args(options)
    try:
        if not (separator and words):
            parser.error("a command is missing: program OPTIONS -- COMMAND ...")
        return _run(args, words)
    except EmuGpuError as error:
        print(f"emugpu: {error}", file=sys.stderr)
        return EXIT_FAILED if error.retry_helps else EXIT_WRONG_IN_POD


def _divided(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    """The options, whether there is a command after them, and the command."""
    if "--" not in argv:
        return argv, False, []
    place = argv.index("--")
    return argv[:place], True, argv[place + 1 :]


def _run(args: argparse.Namespace, words: list[str]) -> int:
    stop = StopSwitch()
    stop.install()
    access = pod_access(os.environ)
    client = ManagerClient(access.manager, access.token, only=())
    try:
        with stop.interruptible():
            client.attach()
        run = ProgramRun(
            words=words,
            variables={},
            manager=client,
            clock=HostClock.of_host(),
            first=client.steps_done,
            steps=args.steps,
            kept_after=_kept_after(args, client) if args.resumes else lambda _elapsed_ns: 0,
            asked_to_stop=lambda: stop.asked,
        )
        outcome = run.run()
    except StopNow:
        return EXIT_STOPPED
    finally:
        client.close()
    if outcome.kind == "stopped":
        return EXIT_STOPPED
    if outcome.kind == "finished":
        return 0
    print(f"emugpu: {outcome.reason}", file=sys.stderr)
    return EXIT_FAILED if run.signalled else EXIT_WRONG_IN_POD


def _kept_after(args: argparse.Namespace, client: ManagerClient) -> Callable[[int], int]:
    """By the profile: the steps of the job that are done so long after the run's begin. Raises what a look-up of profiles
    does."""
    times, first = _times(args, client), client.steps_done
    return lambda elapsed_ns: first + times.steps_done(first, elapsed_ns)


def _times(args: argparse.Namespace, client: ManagerClient) -> StepTimes:
    """The main session uses no device, so that the types come from the device files."""
    request, profiles = request_of(args), profiles_of(args, os.environ)
    types = container_gpu_types()
    plan = plan_step(request, Layout(types, len(types)), profiles)
    start_s = 0.0
    if request.model:
        start_s = profiles.step_profile(request.model, plan.slowest, plan.batch_per_gpu).start_s
    return replace(plan.times(request.steps), start_ns=to_ns(start_s))
