"""Reads traces of torch.profiler from a real GPU as pieces of work with measured times.

A program's own kernels are works with their name, grid and block. The kernels of a library call are one work: that which a traced
program has in their place (operators.py).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emugpu.learning.kernel_traffic import kernel_bytes
from emugpu.learning.operators import LibraryCall, Operator, Shape, UnknownShapesError, library_calls
from emulator_runtime.cuda.kernel_times import Launch, no_kernels, read_document, read_kernel
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.records import Work, WorkKind
from emulator_runtime.profiles.catalogue import bundled_catalogue

_OWN = ("at::", "at_cuda_detail", "triton")
"""In names of a program's own kernels that an operator launches beside those of a library."""
_OF_LIBRARIES = re.compile(
    r"gemm|cutlass|xmma|cudnn|winograd|implicit_convolve|nchwToNhwc|nhwcToNchw|splitKreduce|cublas|nvjet|wgrad|dgrad"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A piece of work and how long it took on the GPU."""

    work: Work
    ns: float


@dataclass(slots=True)
class ProfilerTrace:
    """What traces have: measured works, how many kernels of libraries weren't matched, by the reason, and names of GPUs that the
    catalogue doesn't have."""

    measured: list[Measured] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unknown_gpus: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Kernel:
    launch: Launch
    ns: float


def read_profiler_traces(paths: Sequence[Path], gpu_type: str) -> ProfilerTrace:
    """`gpu_type`: of the catalogue. Raises InputError for a file that isn't a trace, has no kernels, or is of another GPU type;
    and OSError."""
    found = ProfilerTrace()
    for path in paths:
        document, events = read_document(path)
        found.unknown_gpus |= _unknown_gpus(document, gpu_type, path)
        _read_events(events, path, found)
    return found


def _unknown_gpus(document: Mapping[str, object], gpu_type: str, path: Path) -> set[str]:
    """Raises InputError if a device of the trace is another type of the catalogue."""
    unknown = set()
    for device in _list(document.get("deviceProperties")):
        name = device.get("name") if isinstance(device, dict) else None
        if not isinstance(name, str):
            continue
        known = bundled_catalogue().find(name) or bundled_catalogue().find(name.removeprefix("NVIDIA "))
        if known is None:
            unknown.add(name)
        elif known != gpu_type:
            raise InputError("--gpu", f"{path} is a trace of a {name}, not of a {gpu_type}")
    return unknown


def _read_events(events: Sequence[object], path: Path, found: ProfilerTrace) -> None:
    operators: dict[object, Operator] = {}
    kernels: defaultdict[object, list[_Kernel]] = defaultdict(list)
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            continue
        arguments = event.get("args")
        identity = arguments.get("External id") if isinstance(arguments, dict) else None
        if event.get("cat") == "kernel":
            kernel = _Kernel(*read_kernel(event, f"{path}: traceEvents[{number}]"))
            kernels[("none", number) if identity is None else identity].append(kernel)
        elif event.get("cat") == "cpu_op" and isinstance(arguments, dict) and identity is not None:
            operators[identity] = _operator(str(event.get("name")), arguments)
    if not kernels:
        raise no_kernels(path)
    for identity, launched in kernels.items():
        _match(operators.get(identity), launched, found)


def _operator(name: str, arguments: Mapping[str, object]) -> Operator:
    shapes = arguments.get("Input Dims", ())
    types = arguments.get("Input type", ())
    values = arguments.get("Concrete Inputs", ())
    return Operator(name, [_shape(each) for each in _list(shapes)], _texts(types), _texts(values))


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _texts(value: object) -> list[str]:
    return [each if isinstance(each, str) else "" for each in _list(value)]


def _shape(value: object) -> Shape:
    sizes = _list(value)
    return tuple(each for each in sizes if type(each) is int) if all(type(each) is int for each in sizes) else ()


def _match(operator: Operator | None, kernels: Sequence[_Kernel], found: ProfilerTrace) -> None:
    """Kernels that one operator launched."""
    names = [kernel.launch.name for kernel in kernels]
    calls: list[LibraryCall] | None = None
    unknown = "without an operator that is known"
    if operator is not None:
        try:
            calls = library_calls(operator, names)
        except UnknownShapesError:
            unknown = f"of {operator.name} without the shapes of its arguments (record_shapes=True)"
    of_library = []
    for kernel in kernels:
        own = any(mark in kernel.launch.name for mark in _OWN)
        if not own and (calls is not None or _OF_LIBRARIES.search(kernel.launch.name)):
            of_library.append(kernel)
        elif kernel.ns > 0:
            found.measured.append(Measured(own_work(kernel.launch), kernel.ns))
    if of_library and not calls:
        found.left_out[unknown] += len(of_library)
    elif of_library:
        assert calls is not None
        found.measured += [each for each in _shared(calls, of_library) if each.ns > 0]


def _shared(calls: Sequence[LibraryCall], kernels: Sequence[_Kernel]) -> Iterator[Measured]:
    """The time of each call: of the kernels that are marked as its own, and a share by operations of those without a mark."""
    marked = [_time(kernels, call.marks) for call in calls]
    rest_ns = sum(kernel.ns for kernel in kernels) - sum(marked)
    total = sum(call.work.flops or call.work.bytes for call in calls)
    for call, own_ns in zip(calls, marked, strict=True):
        share = (call.work.flops or call.work.bytes) / total if total else 1 / len(calls)
        yield Measured(call.work, own_ns + rest_ns * share)


def _time(kernels: Iterable[_Kernel], marks: Sequence[str]) -> float:
    return sum(kernel.ns for kernel in kernels if any(mark in kernel.launch.name.lower() for mark in marks))


def own_work(launch: Launch) -> Work:
    """A kernel of the program itself, as a traced program has it."""
    return Work(
        launch.name,
        WorkKind.KERNEL,
        bytes=kernel_bytes(launch.name, launch.grid, launch.block),
        grid=launch.grid,
        block=launch.block,
    )
