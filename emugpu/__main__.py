"""`emugpu`: the command line. One module per command in emugpu/commands; this file is the table of them."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from importlib import import_module
from io import TextIOWrapper

from emugpu.interrupts import interruptible_once
from emulator_runtime.domain.errors import EmuGpuError

COMMANDS = ("compare", "simulate", "policies", "gpus", "profile")
EXIT_INPUT = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors are one line on stderr. 0: done, 1: done but jobs failed, 2: an error, 130: interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows '?', the result is not lost
    parser = argparse.ArgumentParser(
        prog="emugpu", description="A GPU cluster that isn't there: emulate, schedule, compare."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    try:
        with interruptible_once():
            for name in COMMANDS:
                import_module(f"emugpu.commands.{name}").add_parser(subparsers)
            args = parser.parse_args(argv)
            status = int(args.run(args))
            if sys.stdout is not None:  # it is None where the caller has closed it
                sys.stdout.flush()
            return status
    except EmuGpuError as error:
        print(f"emugpu: {error}", file=sys.stderr)
        return EXIT_INPUT
    except ModuleNotFoundError as error:
        print(f"emugpu: the package {error.name} is missing: pip install 'emugpu[scheduler]'", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        print("emugpu: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INPUT
    except OSError as error:
        fix = "; raise the limit (ulimit -n)" if error.errno == errno.EMFILE else ""
        print(f"emugpu: {error.filename or 'this machine'}: {error.strerror}{fix}", file=sys.stderr)
        return EXIT_INPUT


if __name__ == "__main__":
    sys.exit(main())
