"""Starts a program on emulated GPUs: the settings file that the core reads, and the program's environment.

The environment is inherited, so that what the program starts (data loaders, `torchrun`'s workers, shells) has the same GPUs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from emulator_runtime.cuda.build import PROGRAM_CLOCK, REDIRECTOR
from emulator_runtime.cuda.families import FAMILIES
from emulator_runtime.domain.errors import BeyondProfileError, InputError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import NS_PER_S, read_duration_ns, to_ns
from emulator_runtime.files import write_whole
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.cuda_properties import PRECISIONS, cuda_properties
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import wall_ns

SETTINGS_VARIABLE = "EMUGPU_CUDA_SETTINGS"
_FIRST_LINE = "emugpu-cuda 1"
_MOST_DEVICES = 64
_KEPT_DAYS = 60
_FIRST_BYTES = 4096
"""A program's first page names its dynamic linker."""


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """Settings of a process, each named as its key in the file; the core's default is used where a value is None.

    `estimator`: roofline or constant, each piece of work takes `constant_ns` then. `kernel_table`: a file with measured times of
    kernels. `anchor`: factor on estimates. `step_ns`: how long a training step takes, from which the core finds the factor once
    it has seen two equal steps. `scalar`: the value of a small read of what a kernel wrote. `trace`: the file of a
    Chrome trace; %p in it is the process's number. `record`: likewise, of the records for predictions; work takes no time then.
    `log`: 0 nothing, 1 what a user should know, 2 each object, 3 each call. `clock`: the file of a clock that processes share.
    `warp`: waits cost no time. `virtual_ranks`: how many ranks the job has, if it is recorded without its other ranks.
    `manager`, `token`: the socket of the sharing manager, and what it knows the container by.
    """

    driver_version: int | None = None
    estimator: str | None = None
    constant_ns: int | None = None
    kernel_table: Path | None = None
    anchor: float | None = None
    step_ns: int | None = None
    scalar: float | None = None
    trace: Path | None = None
    record: Path | None = None
    log: int | None = None
    clock: Path | None = None
    warp: bool | None = None
    virtual_ranks: int | None = None
    manager: Path | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """A device of the process: its GPU type, its UUID, and how much of the memory the process may use.

    `shown_as`: its name, if the GPU type is only like it.
    """

    gpu_type: str
    uuid: str
    memory_bytes: int
    shown_as: str = ""


def devices_of(gpu_type: str, count: int, node: str, memory_bytes: int | None = None) -> tuple[DeviceSettings, ...]:
    """`count` GPUs of a type, as `node` would have them. Raises InputError and UnknownNameError."""
    if not 1 <= count <= _MOST_DEVICES:
        raise InputError("--gpus", f"must be from 1 to {_MOST_DEVICES}, not {count}")
    spec = gpu_spec(gpu_type, "--gpu-type")
    memory = spec.memory_bytes if memory_bytes is None else memory_bytes
    if not 0 < memory <= spec.memory_bytes:
        raise InputError("--memory", f"must be at most the {spec.memory_bytes} bytes that {spec.gpu_type} has")
    return tuple(DeviceSettings(spec.gpu_type, device_uuid(node, index), memory) for index in range(count))


def settings_text(process: ProcessSettings, devices: Iterable[DeviceSettings]) -> str:
    """The settings file. Raises InputError for a value with a line break, and for a GPU type that can't run CUDA programs."""
    lines = [_FIRST_LINE]
    values = {field.name: getattr(process, field.name) for field in fields(process)}
    lines += [_line(key, value) for key, value in values.items() if value is not None]
    for index, device in enumerate(devices):
        lines += [_line("device", index), *(_line(key, value) for key, value in _device_values(device))]
    return "\n".join(lines) + "\n"


def write_settings(text: str, environ: Mapping[str, str]) -> Path:
    """A file with these settings in the user's cache, the same one each time. It stays: the programs that are started read it
    when they like. Raises OSError."""
    folder = _cache(environ) / "cuda-settings"
    folder.mkdir(parents=True, exist_ok=True)
    _forget_old(folder)
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    write_whole(path, text, sync=False, mode=0o600, unfinished=path.with_suffix(f".{os.getpid()}"))
    return path


def write_program(name: str, script: str, environ: Mapping[str, str]) -> Path:
    """A folder in the user's cache that has this program alone, for PATH. Raises OSError."""
    folder = _cache(environ) / "cuda-programs" / hashlib.sha256(script.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / name, script, sync=False, mode=0o755, unfinished=folder / f".{name}.{os.getpid()}")
    return folder


def with_programs(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` in which the programs in `folder` are found before all others."""
    before = environ.get("PATH", os.defpath)
    return {**environ, "PATH": before if before.split(":")[0] == str(folder) else f"{folder}:{before}"}


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(environ.get("EMUGPU_CACHE") or Path(base) / "emugpu").absolute()


def _forget_old(folder: Path) -> None:
    """What a program starts reads its settings, too, so they are kept as long as any program may run."""
    oldest_s = wall_ns() / NS_PER_S - _KEPT_DAYS * 86400
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process has done it
            if path.stat().st_mtime < oldest_s:
                path.unlink()


def environment(
    libraries: Path, settings: Path, environ: Mapping[str, str], *, preload: bool = False, warp: bool = False
) -> dict[str, str]:
    """`environ` with what makes a program find the emulated libraries.

    `preload`: all libraries are loaded into each process at its start, for dynamic linkers and tools that can't audit; libraries
    that a program opens by an absolute path aren't redirected then. `warp`: the program's own clocks show emulated time.
    """
    chosen = {
        **environ,
        SETTINGS_VARIABLE: str(settings),
        "TRITON_LIBCUDA_PATH": str(libraries),
        "USE_PYTORCH_KERNEL_CACHE": "0",  # what the emulated NVRTC makes must not be kept for a real GPU
    }
    preloaded = [str(libraries / PROGRAM_CLOCK)] if warp else []
    if preload:
        preloaded += [str(libraries / soname) for family in FAMILIES for soname in family.sonames]
    if preloaded:
        chosen["LD_PRELOAD"] = _joined(preloaded, environ.get("LD_PRELOAD", ""))
    if preload:
        return chosen
    return {**chosen, "LD_AUDIT": _joined([str(libraries / REDIRECTOR)], environ.get("LD_AUDIT", ""))}


def step_ns(text: str, gpu_type: str, profiles: ProfileTable) -> int:
    """How long a step takes on the device, by `MODEL:BATCH`, the profile of a model at a batch size per GPU, or by a time such as
    86ms. Raises InputError and UnknownNameError."""
    time_ns = read_duration_ns(text)
    if time_ns is not None:
        if time_ns == 0:
            raise InputError("--anchor-to", "a step takes longer than 0")
        return time_ns
    model, _, batch = text.rpartition(":")
    if not model or not batch.isdecimal():
        raise InputError("--anchor-to", f"must be a model and a batch size such as resnet50:64, or a time, not {text}")
    try:
        profile = profiles.step_profile(model, gpu_type, int(batch))
    except BeyondProfileError as error:
        measured = f"{error.what} was measured at batch sizes {error.first} to {error.last}, not at {batch}"
        raise InputError("--anchor-to", f"{measured}; choose one of those or name a time such as 86ms") from error
    return to_ns(profile.forward_s + profile.backward_s)


def check_program(path: str) -> None:
    """Raises InputError for a program whose dynamic linker can't be asked to redirect libraries."""
    try:
        with open(path, "rb") as file:
            beginning = file.read(_FIRST_BYTES)
    except OSError:
        return  # the attempt to start it says more
    if b"/ld-musl-" in beginning:
        raise InputError(
            path, "is linked to musl; CUDA programs and emulated GPUs need glibc (an image based on Debian or Ubuntu)"
        )


def _joined(names: Sequence[str], before: str) -> str:
    """A list for the dynamic linker; what is in it already isn't added again."""
    present = [name for name in before.split(":") if name]
    return ":".join([*(name for name in names if name not in present), *present])


def _line(key: str, value: object) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if "\n" in text:
        raise InputError(key, "must not have a line break")
    return f"{key} {text}"


def _device_values(device: DeviceSettings) -> Iterator[tuple[str, object]]:
    spec = replace(gpu_spec(device.gpu_type, "gpu_type"), memory_bytes=device.memory_bytes)
    cuda = cuda_properties(spec.gpu_type, "gpu_type")
    major, _, minor = spec.compute_capability.partition(".")
    yield "name", device.shown_as or cuda.name
    yield "uuid", device.uuid
    yield "gpu_type", device.shown_as or spec.gpu_type
    yield "memory_bytes", spec.memory_bytes
    yield "context_bytes", min(cuda.context_bytes, spec.memory_bytes)
    yield "capability_major", major
    yield "capability_minor", minor
    yield "multiprocessors", cuda.multiprocessors
    yield "clock_khz", cuda.clock_khz
    yield "memory_clock_khz", cuda.memory_clock_khz
    yield "memory_bus_bits", cuda.memory_bus_bits
    yield "l2_bytes", cuda.l2_bytes
    yield "shared_memory_per_multiprocessor", cuda.shared_bytes_per_multiprocessor
    yield "shared_memory_per_block_optin", cuda.shared_bytes_per_block
    for precision in PRECISIONS:
        yield f"flops_{precision}", cuda.operations_per_s[precision]
    yield "memory_bytes_per_s", cuda.memory_bytes_per_s
    yield "host_link_bytes_per_s", spec.host_link_bytes_per_s
    yield "peer_link_bytes_per_s", spec.peer_link_bytes_per_s
    yield from ((name, value) for name, value in asdict(cuda.roofline).items() if value is not None)
