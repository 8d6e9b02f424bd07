"""The process of a training job: `python -m emulator_runtime.workloads --standby FD`.

It is started in advance, reports that it is ready, and then executes the orders that it gets over that socket, one run at a time,
in the time of the shared clock whose file EMUGPU_CLOCK names. It exits with 0 when the socket is closed and with 1 after a wrong
order.

`python -m emulator_runtime.workloads train ...` is `emugpu train` for images that have only this library, such as those that
mount the node's copy of it (`train --help` lists the options). `program ... -- COMMAND` runs a program in its place, in a pod of
an EmuJob with `spec.program`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import NoReturn

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError
from emulator_runtime.exit_codes import EXIT_STOPPED
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.client import ManagerClient
from emulator_runtime.ipc.control import ControlChannel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.warp import WarpClock
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import prepare_waiting, set_realtime_priority, shorten_slice
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.workloads.order import ProgramOrder, RunOrder
from emulator_runtime.workloads.parent import end_with_parent
from emulator_runtime.workloads.program_run import ProgramRun
from emulator_runtime.workloads.several_managers import SeveralManagers
from emulator_runtime.workloads.training import Outcome, TrainingRun


def main(argv: list[str]) -> int:
    """Run the program and return its exit status. Errors are one line on stderr."""
    if argv[:1] == ["train"]:
        from emulator_runtime.workloads.command.train import main as train  # standby processes don't need its imports

        return train(argv[1:])
    if argv[:1] == ["program"]:
        from emulator_runtime.workloads.command.program import main as program

        return program(argv[1:])
    prepare_waiting()
    realtime = os.environ.get("EMUGPU_REALTIME") == "1"
    refused = realtime and not set_realtime_priority()
    if refused:
        print(
            "emugpu job: EMUGPU_REALTIME: real-time priority is refused here (it needs CAP_SYS_NICE)", file=sys.stderr
        )
    if refused or not realtime:
        shorten_slice()
    try:
        match argv:
            case ["--standby", fd] if fd.isdigit():
                return _standby(ControlChannel(socket.socket(fileno=int(fd))), refused=refused)
            case _:
                print(__doc__)
                return 0 if argv in (["-h"], ["--help"]) else 2
    except EmuGpuError as error:
        print(f"emugpu job: {error}", file=sys.stderr)
        return 1


def _standby(control: ControlChannel, *, refused: bool) -> int:
    """Execute orders until the control socket is closed. `refused`: the host refused the real-time priority."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process at the other end handles Ctrl-C
    clock = _clock(control)
    control.send({"op": "ready", "realtime_refused": refused})
    while True:
        try:
            message = control.receive_order()
        except ManagerUnavailableError:
            return 0
        control.send(_run(RunOrder.from_message(message), clock, control))


def _run(order: RunOrder, clock: Clock, control: ControlChannel) -> Message:
    if order.program is not None:
        return _run_program(order, order.program, clock)
    client = SeveralManagers.of(order, clock if isinstance(clock, WarpClock) else None)
    run = TrainingRun(order, clock, client, new_share=control.new_share)
    try:
        outcome = run.run()
    except EmuGpuError as error:
        outcome = Outcome("failed", 0, 0, str(error))
    finally:
        client.close()
    return _ended(outcome, run.start_lag_ns, run.lags, client.reconnects)


def _run_program(order: RunOrder, program: ProgramOrder, clock: Clock) -> Message:
    """One run of a job by the user's program."""
    client = ManagerClient(order.manager, order.token, order.job_id, only=())
    start_lag_ns = 0
    try:
        times = order.step_times(order.profile_table())
        client.attach(order.first_step)
        start_lag_ns = max(0, clock.wait_until_ns(order.begin_ns))
        run = ProgramRun(
            words=program.words,
            variables=program.variables,
            manager=client,
            clock=clock,
            first=order.first_step,
            steps=order.steps,
            kept_after=lambda ns: times.steps_done(order.first_step, ns) + order.first_step if program.resumes else 0,
            release_ns=order.release_ns,
        )
        signal.signal(signal.SIGTERM, _end_now)
        outcome = run.run()
    except EmuGpuError as error:
        outcome = Outcome("failed", order.first_step, 0, str(error))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        client.close()
    return _ended(outcome, start_lag_ns, LagHistogram(), client.reconnects)


def _end_now(_number: int, _frame: object) -> NoReturn:
    """The cluster ends: the program and what it has started are killed on the way out."""
    raise SystemExit(EXIT_STOPPED)


def _ended(outcome: Outcome, start_lag_ns: int, lags: LagHistogram, reconnects: int) -> Message:
    """The report of a run."""
    return {
        "op": "ended",
        "outcome": outcome.kind,
        "steps_done": outcome.steps_done,
        "steps_run": outcome.steps_run,
        "reason": outcome.reason[:2000],
        "start_lag_ns": start_lag_ns,
        "lags": lags.to_json(),
        "reconnects": reconnects,
    }


def _clock(control: Channel) -> Clock:
    """The shared clock in the file EMUGPU_CLOCK, or the host's clock if the variable is empty."""
    path = os.environ.get("EMUGPU_CLOCK")
    if not path:
        return HostClock.of_host()
    source = SharedClockFile.open(path)
    return WarpClock(source, control) if source.mode == "warp" else HostClock(source)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
