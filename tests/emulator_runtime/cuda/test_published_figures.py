"""Time and memory of 36 unmodified models on emulated GPUs, beside what the GPEmu paper's authors measured on real ones.

It takes about half an hour, needs PyTorch (tools/torchvision_steps.py), and prints tables (pytest -s):

    EMUGPU_MEASUREMENTS=DIR python -m pytest -s -m frameworks tests/emulator_runtime/cuda/test_published_figures.py

EMUGPU_MEASUREMENTS names a folder with compute.csv.gz, memory.csv.gz and coverage.csv. docs/cuda.md has the results.
"""

from __future__ import annotations

import csv
import ctypes
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator_runtime.cuda.launch import DeviceSettings, ProcessSettings, settings_text
from emulator_runtime.domain.units import MIB
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.table import ProfileTable

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "tools" / "torchvision_steps.py"
A100, V100, P100 = "NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB", "Tesla_P100-PCIE-16GB"
BATCH_SIZES = (16, 64, 128)
MARK_BYTES = 12345
MEMORY_BOUND = 4

# What the measured processes couldn't allocate: before CUDA 11.7, a context loaded all kernels of the program's libraries. With
# these values most of the measured boundaries are met (tools/torchvision_steps.py limits).
CONTEXT_MIB = {A100: 2420, V100: 1450}
BOUNDARY = 0.03

Pair = tuple[str, int]  # model, batch size


@pytest.fixture(scope="module")
def measurements() -> Path:
    folder = os.environ.get("EMUGPU_MEASUREMENTS", "")
    if not (Path(folder) / "compute.csv.gz").is_file():
        pytest.skip("EMUGPU_MEASUREMENTS doesn't name a folder with the GPEmu measurements")
    return Path(folder)


@pytest.fixture(scope="module")
def torch() -> Path:
    path = Path.home() / ".cache" / "emugpu" / "torch" / "2.10.0" / "bin" / "python"
    if not path.exists():
        pytest.skip(f"torch isn't installed: there is no {path}")
    return path


@dataclass(frozen=True, slots=True)
class Step:
    """What a step gave to the device, as events of the core's trace, and the peak of its memory."""

    works: list[dict[str, object]]
    peak_bytes: int


@pytest.fixture(scope="module")
def steps(
    measurements: Path,  # what nothing could be compared with isn't made
    torch: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[Pair, Step]:
    trace = tmp_path_factory.mktemp("steps") / "trace.json"
    options = ["--gpu-type", "NVIDIA-A100-SXM4-80GB", "--trace", str(trace)]
    models = ",".join(ProfileTable.bundled().models)
    rows = train(torch, options, "steps", models, ",".join(map(str, BATCH_SIZES)))
    with trace.open(encoding="utf-8") as lines:
        return {
            (model, batch): Step(works, peak) for (model, batch, peak), works in zip(rows, sections(lines), strict=True)
        }


def train(torch: Path, options: Sequence[str], *words: str) -> list[list]:
    """The rows that the program prints."""
    command = [sys.executable, "-m", "emugpu", "run", "--warp", *options, "--", str(torch), str(PROGRAM), *words]
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":0:0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]


def sections(lines: Iterator[str]) -> Iterator[list[dict[str, object]]]:
    """The compute units' work between each two marks."""
    current: list[dict[str, object]] | None = None
    for line in lines:
        if not line.startswith('{"ph"'):
            continue
        event = json.loads(line.rstrip().rstrip(","))
        copied = event["name"].startswith("Memcpy")
        if copied and event["args"].get("bytes") == MARK_BYTES:
            if current is not None:
                yield current
            current = [] if current is None else None
        elif current is not None and (not copied or event["name"] == "Memcpy DtoD"):
            current.append(event)


def rows_of(path: Path) -> list[dict[str, str]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(text.splitlines()))


# ---- memory


def test_peaks_of_memory_are_those_of_an_a100(steps: Mapping[Pair, Step], measurements: Path) -> None:
    rows = rows_of(measurements / "memory.csv.gz")
    measured = {r["model"]: int(r["peak_bytes"]) for r in rows if r["gpu"] == A100 and r["batch_size"] == "64"}
    found = {}
    print(f"\n{'peak at batch 64':22}{'A100':>10}{'emulated':>10}")
    for model, real in sorted(measured.items()):
        emulated = steps[model, 64].peak_bytes
        found[model] = emulated / real - 1
        print(f"{model:22}{real / MIB:10.0f}{emulated / MIB:10.0f} MiB{found[model]:+8.2%}")
    print(f"mean {statistics.mean(map(abs, found.values())):.2%}, largest {max(map(abs, found.values())):.2%}")
    assert statistics.mean(map(abs, found.values())) <= 0.005
    assert max(map(abs, found.values())) <= 0.02


@dataclass(frozen=True, slots=True)
class End:
    """The last batch size of a series of measured times. Nothing beyond 256 was measured."""

    gpu_type: str
    model: str
    batch: int

    @property
    def wanted(self) -> tuple[int, int]:
        """The first and the last batch size to try: to 3% below the end, and beyond those above it."""
        if self.batch == 256:
            return 256, 256
        return int(self.batch * (1 - BOUNDARY)), int(self.batch * (1 + BOUNDARY)) + 1

    def is_near(self, emulated: int) -> bool:
        """0: less than was tried."""
        first, last = self.wanted
        return emulated == first if first == last else first <= emulated < last


def test_memory_ends_where_it_ended_on_real_gpus(torch: Path, measurements: Path) -> None:
    """A series that stopped before a batch size of 256 is taken to have run out of memory."""
    series = [
        End(row["gpu"], row["model"], int(row["compute_last_measured_batch"]))
        for row in rows_of(measurements / "coverage.csv")
        if row["gpu"] in CONTEXT_MIB
    ]
    emulated = {end: found for gpu_type in CONTEXT_MIB for end, found in ends(torch, gpu_type, series).items()}
    print(f"\n{'last batch size':44}{'real':>8}{'emulated':>10}")
    for end in series:
        if end.batch < 256 or emulated[end] < 256:
            print(f"{end.gpu_type:24}{end.model:20}{end.batch:8}{emulated[end] or f'< {end.wanted[0]}':>10}")
    exact = sum(emulated[end] == end.batch for end in series)
    by_one = sum(abs(emulated[end] - end.batch) <= 1 for end in series)
    near = sum(end.is_near(emulated[end]) for end in series)
    print(f"of {len(series)}: {exact} the same, {by_one} to within one image, {near} to within {BOUNDARY:.0%}")
    assert by_one >= 0.9 * len(series)
    assert near >= 0.95 * len(series)


def ends(torch: Path, gpu_type: str, series: Sequence[End]) -> dict[End, int]:
    """The last batch size for which emulated memory suffices; 0 if it is less than those that were tried."""
    spec = gpu_spec(gpu_type, "test")
    memory_mib = spec.memory_bytes / MIB - CONTEXT_MIB[gpu_type] + context_mib(gpu_type)
    options = ["--gpu-type", gpu_type, "--memory", f"{memory_mib:.0f}MiB"]
    chosen = [end for end in series if end.gpu_type == gpu_type]
    rows = train(torch, options, "ends", *(":".join(map(str, (end.model, *end.wanted))) for end in chosen))
    return {end: last for end, (_, last) in zip(chosen, rows, strict=True)}


def context_mib(gpu_type: str) -> float:
    from emulator_runtime.profiles.cuda_properties import cuda_properties

    return cuda_properties(gpu_type, "test").context_bytes / MIB


# ---- time


class Work(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("precision", ctypes.c_int),
        ("flops", ctypes.c_double),
        ("bytes", ctypes.c_double),
        ("columns", ctypes.c_double),
        ("depth", ctypes.c_double),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
    )


def work_of(event: Mapping[str, object]) -> Work:
    arguments = event["args"]
    assert isinstance(arguments, dict)
    numbers = {
        name: arguments[name] for name in ("precision", "flops", "bytes", "columns", "depth") if name in arguments
    }
    sizes = {name: (ctypes.c_uint * 3)(*arguments[name]) for name in ("grid", "block") if name in arguments}
    return Work(kind=arguments.get("kind", MEMORY_BOUND), name=str(event["name"]).encode(), **numbers, **sizes)


@pytest.fixture
def step_ms(libraries: Path, tmp_path: Path):
    """`step_ms(works, gpu_type, step_ns)`: what the core makes of a step that is done again and again, in a process of its own.
    The shortest of some steps counts, since emulated time goes on while the machine is busy with others."""

    def measure(works: Sequence[Work], gpu_type: str, step_ns: int | None = None) -> float:
        settings = tmp_path / "settings"
        spec = gpu_spec(gpu_type, "test")
        process = ProcessSettings(estimator="roofline", warp=True, log=0, step_ns=step_ns)
        settings.write_text(settings_text(process, [DeviceSettings(spec.gpu_type, "GPU-1", spec.memory_bytes)]))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.environ["EMUGPU_CUDA_SETTINGS"] = str(settings)
                os.write(writing, repr(shortest_ms(libraries, works)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as answer:
            text = answer.read()
        assert os.waitpid(child, 0)[1] == 0
        return float(text)

    return measure


def shortest_ms(libraries: Path, works: Sequence[Work]) -> float:
    core = ctypes.CDLL(str(libraries / "libemugpu_core.so"))
    core.emu_stream_default.restype = c_void_p
    core.emu_now_ns.restype = ctypes.c_int64
    core.emu_start()
    stream = c_void_p(core.emu_stream_default(0))
    calls = [byref(work) for work in works]
    times = []
    for _ in range(9):
        begin = core.emu_now_ns()
        for each in calls:
            core.emu_launch(stream, each)
        core.emu_stream_synchronize(stream)
        times.append((core.emu_now_ns() - begin) / 1e6)
    return min(times[4:])


def test_times_of_steps_are_those_of_real_gpus(steps: Mapping[Pair, Step], measurements: Path, step_ms) -> None:
    measured = {
        (r["gpu"], r["model"], int(r["batch_size"])): float(r["forward_s"]) + float(r["backward_s"])
        for r in rows_of(measurements / "compute.csv.gz")
        if r["origin"] == "measured" and int(r["batch_size"]) in BATCH_SIZES
    }
    estimates, anchored = {}, {}
    for (model, batch), step in sorted(steps.items()):
        works = [work_of(event) for event in step.works]
        for gpu_type in (A100, V100, P100):
            real_s = measured.get((gpu_type, model, batch))
            if real_s is None:
                continue
            key = gpu_type, model, batch
            estimates[key] = step_ms(works, gpu_type) / 1000 / real_s - 1
            anchored[key] = step_ms(works, gpu_type, round(real_s * 1e9)) / 1000 / real_s - 1
    print_times(measured, estimates)
    for gpu_type in (A100, V100, P100):
        of_type = [abs(error) for key, error in estimates.items() if key[0] == gpu_type]
        exact = [abs(error) for key, error in anchored.items() if key[0] == gpu_type]
        print(
            f"{gpu_type}: {len(of_type)} steps; estimates: mean {statistics.mean(of_type):.1%}, median "
            f"{statistics.median(of_type):.1%}, largest {max(of_type):.0%}; anchored: largest {max(exact):.2%}"
        )
        assert statistics.median(of_type) <= 0.12
    worst = sorted(anchored.items(), key=lambda item: -abs(item[1]))[:3]
    assert max(map(abs, anchored.values())) <= 0.02, worst


def print_times(
    measured: Mapping[tuple[str, str, int], float], estimates: Mapping[tuple[str, str, int], float]
) -> None:
    columns = [f"{name} {batch}" for name in ("A100", "V100", "P100") for batch in BATCH_SIZES]
    print(f"\n{'ms, estimate':22}" + "".join(f"{column:>16}" for column in columns))
    for model in sorted({model for _, model, _ in estimates}):
        cells = []
        for key in ((gpu_type, model, batch) for gpu_type in (A100, V100, P100) for batch in BATCH_SIZES):
            cells.append(f"{measured[key] * 1e3:.0f} {estimates[key]:+.0%}" if key in estimates else "-")
        print(f"{model:22}" + "".join(f"{cell:>16}" for cell in cells))
