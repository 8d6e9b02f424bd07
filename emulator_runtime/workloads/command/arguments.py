"""The options of `train`, and their conversion to a TrainRequest: texts become numbers with units only here."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from emulator_runtime.command_line import OneLineParser
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.json_document import parse
from emulator_runtime.domain.samples import MAX_BATCH_SIZE, MAX_SAMPLES
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.units import MAX_SECONDS, to_ns
from emulator_runtime.exit_codes import EXIT_WRONG_IN_POD
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.command.sensitivity_options import MAX_CPUS, sensitivity_of
from emulator_runtime.workloads.command.sizes import parse_bytes
from emulator_runtime.workloads.pod import NODES_VARIABLE, RANK_VARIABLES, RENDEZVOUS_VARIABLE, whole_variable
from emulator_runtime.workloads.ranks.options import BARRIER_TIMEOUT_S, JOIN_TIMEOUT_S
from emulator_runtime.workloads.step_costs.communication import DEFAULT_NETWORK_GBPS
from emulator_runtime.workloads.step_costs.request import PARALLEL, TrainRequest

_MAX_STEPS = 2**40

_STAGES = ("--fetch-s", "--transfer-s", "--exchange-s")
_OF_CONFIGURATIONS = (
    *("--model", "--batch-size", "--step-time-s", "--memory", "--cpu-speeds", "--memory-speeds"),
    *_STAGES,
)

CONFIGURATION_VARIABLE = "EMUGPU_CONFIGURATION"
"""The variable with the name of the configuration to run, one of those in --configuration."""
BATCH_SIZE_VARIABLE = "EMUGPU_BATCH_SIZE"
"""The variable with the batch size of this run of a job that counts --samples, instead of --batch-size."""
PROFILES_VARIABLE = "EMUGPU_PROFILES"
"""The variable with profiles of the job's own: what `models` of a file of profiles has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `train` to a parser, and its exit status after a usage error."""
    if isinstance(parser, OneLineParser):
        parser.exit_wrong = EXIT_WRONG_IN_POD
    what = parser.add_argument_group("what to train")
    _add_work(what)
    what.add_argument(
        "--configuration",
        action="append",
        default=[],
        metavar="NAME=OPTIONS",
        help="instead of these: several such works, of which one is chosen at the start, as in 'big=--model resnet50 "
        "--batch-size 256'; may be repeated",
    )
    what.add_argument(
        "--configuration-from",
        default=CONFIGURATION_VARIABLE,
        metavar="VARIABLE",
        help=f"the variable that names the configuration to run (default {CONFIGURATION_VARIABLE})",
    )
    length = what.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, metavar="N", help="steps of the whole job, over all its runs")
    length.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="instead, of a model: samples of the whole job, whose runs may differ in GPUs and batch size "
        f"(${BATCH_SIZE_VARIABLE}, else --batch-size); progress is counted in samples",
    )
    what.add_argument("--profiles", type=Path, metavar="FILE.json", help="your own profiles, beside the bundled ones")
    what.add_argument("--extrapolate", action="store_true", help="allow batch sizes beyond the measured ones")
    _add_ranks(parser.add_argument_group("several GPUs and pods"))
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="one JSON object on stdout at the end; progress on stderr")
    output.add_argument("--log-steps", metavar="FILE", help="append a line per step: step,start_ns,end_ns,seen_ns")


def _add_work(group: argparse._ActionsContainer) -> None:
    group.add_argument("--model", default="", help="a profiled model, such as resnet50 (emugpu profile list)")
    group.add_argument("--batch-size", type=int, metavar="N", help="samples of one step on all GPUs together")
    group.add_argument("--step-time-s", type=float, metavar="S", help="work without a profile: seconds of one step")
    group.add_argument("--memory", metavar="SIZE", help="with --step-time-s: memory on each GPU, such as 10GiB")
    group.add_argument(
        "--cpu-speeds", metavar="3=1,6=1.5", help="with --step-time-s: how many times as fast it is with so many CPUs"
    )
    group.add_argument(
        "--memory-speeds", metavar="60GiB=1,90GiB=2", help="the same by host memory; the slower of both counts"
    )
    group.add_argument("--input-cpu-s", type=float, metavar="S", help="CPU seconds to prepare the input of one step")
    group.add_argument(
        "--host-s", type=float, metavar="S", help="seconds before each step in which the GPU waits for the host"
    )
    cpus = "emulated CPUs for --input-cpu-s (default 1) and --cpu-speeds, unless the job's scheduler gives it others"
    group.add_argument("--cpus", type=float, metavar="N", help=cpus)
    group.add_argument("--host-memory", metavar="SIZE", help="the same of emulated memory, for --memory-speeds")
    needed = ("the storage of its node", "the link of each of its GPUs", "the network of its node, after its GPUs")
    for option, resource in zip(_STAGES, needed, strict=True):
        group.add_argument(option, type=float, metavar="S", help=f"seconds for which each step needs {resource}")


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
        "--rendezvous-timeout-s", type=float, metavar="S", help=f"wait for other pods ({JOIN_TIMEOUT_S:g})"
    )
    group.add_argument(
        "--step-timeout-s", type=float, metavar="S", help=f"wait for a step of others ({BARRIER_TIMEOUT_S:g})"
    )
    group.add_argument(
        "--network-gbps",
        type=float,
        metavar="G",
        help=f"emulated network between nodes, Gbit/s each way (default {DEFAULT_NETWORK_GBPS:g})",
    )


def profiles_of(args: argparse.Namespace, environ: Mapping[str, str]) -> ProfileTable:
    """The profiles: bundled ones, those of the environment, and those of --profiles. Raises InputError with the place."""
    profiles, own = ProfileTable.bundled(), environ.get(PROFILES_VARIABLE)
    if own:
        profiles = profiles.with_models(parse(own, PROFILES_VARIABLE))
    return profiles.with_file(args.profiles) if args.profiles else profiles


def chosen(args: argparse.Namespace, environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments with what the environment chooses: one of the configurations, the batch size of a job that counts samples.

    A container's arguments can't be changed after its creation, but a variable taken from an annotation of its pod can.
    Raises InputError naming the option or the variable.
    """
    args = _with_configuration(args, environ)
    if args.samples is None or not environ.get(BATCH_SIZE_VARIABLE):
        return args
    given = whole_variable(environ, (BATCH_SIZE_VARIABLE,), 0)
    batch_size = whole(given, BATCH_SIZE_VARIABLE, 0, least=1, most=MAX_BATCH_SIZE)
    return argparse.Namespace(**{**vars(args), "batch_size": batch_size})


def _with_configuration(args: argparse.Namespace, environ: Mapping[str, str]) -> argparse.Namespace:
    """The arguments with the work of the configuration that the environment names; unchanged without --configuration."""
    if not args.configuration:
        return args
    if any(getattr(args, _name_of(option)) not in (None, "") for option in _OF_CONFIGURATIONS):
        raise InputError("--configuration", f"says what to train; leave out {', '.join(_OF_CONFIGURATIONS)}")
    known = dict(_named(text) for text in args.configuration)
    variable = args.configuration_from
    name = environ.get(variable, "") or (next(iter(known)) if len(known) == 1 else "")
    if not name:
        raise InputError(variable, f"is missing: it names one of the configurations {', '.join(known)}")
    if name not in known:
        raise UnknownNameError(variable, "configuration", name, known)
    work = _WorkParser(f"--configuration {name}").parse_args(known[name])
    given = {option: value for option, value in vars(work).items() if value not in (None, "")}
    return argparse.Namespace(**{**vars(args), **given})


def _name_of(option: str) -> str:
    return option[2:].replace("-", "_")


def _named(text: str) -> tuple[str, list[str]]:
    name, equals, options = text.partition("=")
    try:
        if name and equals:
            return name, shlex.split(options)
    except ValueError:
        pass
    raise InputError("--configuration", f"must be NAME=OPTIONS such as 'big=--step-time-s 0.1', not {text!r}")


class _WorkParser(argparse.ArgumentParser):
    """Parses the options of one configuration; a mistake is an InputError that names the configuration."""

    def __init__(self, place: str) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self._place = place
        _add_work(self)

    def error(self, message: str) -> NoReturn:
        raise InputError(self._place, message)


def request_of(args: argparse.Namespace) -> TrainRequest:
    """The request in the arguments. Raises InputError naming the option."""
    by_model = bool(args.model) or args.batch_size is not None
    by_time = args.step_time_s is not None or args.memory is not None
    if by_model == by_time:
        raise InputError("emugpu train", "give either --model and --batch-size, or --step-time-s and --memory")
    if by_model and not (args.model and args.batch_size is not None):
        raise InputError("emugpu train", "--model and --batch-size belong together")
    if by_time and args.samples is not None:
        raise InputError("--samples", "belongs to --model; work without a profile has --steps")
    if by_time and args.step_time_s is None:
        raise InputError("--memory", "belongs to --step-time-s; a model's memory is in its profile")
    if by_time and args.extrapolate:
        raise InputError("--extrapolate", "belongs to --model; --step-time-s has no profile to go beyond")
    if by_model and (args.cpu_speeds or args.memory_speeds):
        option = "--cpu-speeds" if args.cpu_speeds else "--memory-speeds"
        raise InputError(option, "belongs to --step-time-s; a model's input takes --input-cpu-s")
    if args.cpus is not None and not (args.input_cpu_s or args.cpu_speeds):
        raise InputError(
            "--cpus", "belongs to --input-cpu-s, the CPU time of a step that they share, or to --cpu-speeds"
        )
    if args.host_memory is not None and not args.memory_speeds:
        raise InputError("--host-memory", "belongs to --memory-speeds")
    stages = _stages(args)
    batch_size = whole(args.batch_size, "--batch-size", 0, least=1, most=MAX_BATCH_SIZE) if by_model else 0
    samples = whole(args.samples, "--samples", 0, least=1, most=MAX_SAMPLES) if args.samples is not None else 0
    steps = -(-samples // batch_size) if samples else whole(args.steps, "--steps", 1, least=1, most=_MAX_STEPS)
    return TrainRequest(
        steps=steps,
        model=args.model,
        batch_size=batch_size,
        step_time_s=number(args.step_time_s, "--step-time-s", above=0.0) if by_time else 0.0,
        memory_bytes=parse_bytes(args.memory, "--memory") if args.memory else 0,
        gradient_bytes=parse_bytes(args.gradient_bytes, "--gradient-bytes") if args.gradient_bytes else 0,
        input_cpu_s=number(args.input_cpu_s, "--input-cpu-s"),
        host_s=number(args.host_s, "--host-s"),
        sensitivity=sensitivity_of(args),
        host=_host(args),
        parallel=args.parallel or "",
        network_gbps=number(args.network_gbps, "--network-gbps", DEFAULT_NETWORK_GBPS, above=0.0),
        extrapolate=args.extrapolate,
        samples=samples,
        stages=stages,
    )


def _stages(args: argparse.Namespace) -> StageTimes:
    times = {option: number(getattr(args, _name_of(option)), option) for option in _STAGES}
    for option in (option for option, seconds in times.items() if seconds):
        if args.samples is not None or args.cpu_speeds or args.memory_speeds:
            other = "--samples" if args.samples is not None else "--cpu-speeds and --memory-speeds"
            raise InputError(option, f"is for jobs on one number of GPUs whose steps take one time; leave {other} out")
    return StageTimes(*map(to_ns, times.values()))


def _host(args: argparse.Namespace) -> HostShare:
    cpu_milli = round(number(args.cpus, "--cpus", 1.0, above=0.0) * 1000)
    if not 1 <= cpu_milli <= MAX_CPUS * 1000:
        raise InputError("--cpus", f"must be from 0.001 to {MAX_CPUS}, not {args.cpus:g}")
    return HostShare(cpu_milli, parse_bytes(args.host_memory, "--host-memory") if args.host_memory else 0)


def whole(value: int | None, place: str, default: int, *, least: int = 0, most: int) -> int:
    """The whole number of an option, or `default` if it isn't given. Raises InputError naming the option."""
    result = default if value is None else value
    if not least <= result <= most:
        raise InputError(place, f"must be from {least} to {most}, not {result}")
    return result


def number(given: float | None, place: str, default: float = 0.0, *, above: float | None = None) -> float:
    """The number of an option, or `default` if it isn't given. Raises InputError naming the option."""
    value = default if given is None else given
    if not (0.0 if above is None else above) <= value <= MAX_SECONDS or value == above:
        raise InputError(
            place, f"must be {'>=' if above is None else '>'} 0 and at most {MAX_SECONDS:g}, not {value:g}"
        )
    return value
