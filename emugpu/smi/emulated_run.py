"""The nvidia-smi of programs under `emugpu run` and `emugpu trace`: it reads the emulated NVML, so that it agrees with what the
programs see."""

from __future__ import annotations

import ctypes
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import emugpu
from emugpu.smi.devices import Gpu, Picture, Process, clean
from emulator_runtime.cuda import launch
from emulator_runtime.node.layout import CONTAINER_CUDA_DIR, CUDA_SETTINGS

_SONAME = "libnvidia-ml.so.1"
_MOST_PROCESSES = 128
_ROOM = 4096


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("gpu", "memory")]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("used", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),
        ("part", ctypes.c_uint32),
    ]


def with_nvidia_smi(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` in which nvidia-smi is `emugpu smi` of this installation. Raises OSError."""
    root, python = shlex.quote(str(Path(emugpu.__file__).parents[1])), shlex.quote(sys.executable)
    # Whatever Python the program has in its environment, this one starts with its own libraries.
    script = f'#!/bin/sh\nunset PYTHONHOME\nPYTHONPATH={root} exec {python} -P -m emugpu smi "$@"\n'
    return launch.with_programs(launch.write_program("nvidia-smi", script, environ), environ)


def run_picture(environ: Mapping[str, str]) -> Picture | None:
    """The GPUs of the run to which this process belongs, as the dynamic linker finds them for all its programs. None outside of
    a run, also in a container with emulated GPUs, whose manager knows more."""
    of_container = str(Path(CONTAINER_CUDA_DIR) / CUDA_SETTINGS)
    if environ.get(launch.SETTINGS_VARIABLE, of_container) == of_container:
        return None
    try:
        nvml = ctypes.CDLL(_SONAME)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return Picture(tuple(_gpu(nvml, index) for index in range(count.value)))


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    device, memory, load = ctypes.c_void_p(), _Memory(), _Utilization()
    nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(load))
    return Gpu(
        index,
        _text(nvml, "nvmlDeviceGetName", device),
        _text(nvml, "nvmlDeviceGetUUID", device),
        memory.total,
        used_bytes=memory.used,
        utilisation=load.gpu / 100,
        healthy=True,
        processes=_processes(nvml, device),
    )


def _processes(nvml: ctypes.CDLL, device: ctypes.c_void_p) -> tuple[Process, ...]:
    count, found = ctypes.c_uint(_MOST_PROCESSES), (_Process * _MOST_PROCESSES)()
    nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found)
    return tuple(
        Process(each.pid, _text(nvml, "nvmlSystemGetProcessName", ctypes.c_uint(each.pid)), each.used)
        for each in found[: count.value]
    )


def _text(nvml: ctypes.CDLL, function: str, about: ctypes.c_void_p | ctypes.c_uint) -> str:
    """Empty for a process that has ended meanwhile."""
    text = ctypes.create_string_buffer(_ROOM)
    getattr(nvml, function)(about, text, _ROOM)
    return clean(text.value.decode(errors="replace"))
