"""What emulated CUDA costs: launches, host time of ResNet-50, overlap with loading, many processes on few cores, warp.

PyTorch's part needs a Python with torch and torchvision (`--torch VENV/bin/python`; by default the newest of CI's cache), and is
left out, with a line, where there is none. Every figure is that of the machine as it is: the load is printed with it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from emulator_runtime.cuda.build import CORE, built

CACHE = Path.home() / ".cache" / "emugpu" / "torch"
PROCESSES = 12

STEP = """
import json, sys, time
import torch, torchvision
def training(model="resnet50", batch=64):
    model = getattr(torchvision.models, model)().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss().cuda()
    images, labels = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(0, 1000, (batch,)).cuda()
    def step():
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step
"""

HOST = """
step = training()
for _ in range(5):
    step()
times = []
for _ in range(int(sys.argv[1])):
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    times.append((time.perf_counter() - began) * 1e3)
print(json.dumps(times))
"""

OVERLAP = """
def load():
    "60 ms of a processor, as decoding images would take; a sleep, so that a busy machine doesn't lengthen it."
    time.sleep(0.06)
step = training()
for _ in range(6):
    step()
torch.cuda.synchronize()
count = int(sys.argv[1])
answer = {}
for name in ("no loading", "asynchronous", "with .item()"):
    began = time.perf_counter()
    for _ in range(count):
        if name != "no loading":
            load()
        loss = step()
        if name == "with .item()":
            loss.item()
    torch.cuda.synchronize()
    answer[name] = (time.perf_counter() - began) / count * 1e3
print(json.dumps(answer))
"""

DENSITY = """
step = training()
for _ in range(6):
    step()
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
count = int(sys.argv[1])
began, used = time.perf_counter(), time.process_time()
for _ in range(count):
    step()
    torch.cuda.synchronize()
print(json.dumps([(time.perf_counter() - began) / count * 1e3, (time.process_time() - used) / count * 1e3]))
"""

WARP = """
step = training()
for _ in range(6):
    step()
torch.cuda.synchronize()
def host_s():
    with open("/proc/uptime") as file:
        return float(file.read().split()[0])
count = int(sys.argv[1])
emulated, host, used = time.monotonic(), host_s(), time.process_time()
for _ in range(count):
    step()
    torch.cuda.synchronize()
print(json.dumps([time.monotonic() - emulated, host_s() - host, time.process_time() - used]))
"""


def main(argv: list[str]) -> int:
    """Print the tables; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cuda_costs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--torch", type=Path, help="a Python with torch and torchvision")
    options = parser.parse_args(argv)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print_launches(20_000 if options.quick else 1_000_000)
    python = options.torch or newest_torch()
    if python is None:
        print(f"the rest needs PyTorch: there is none in {CACHE}; name one by --torch")
        return 0
    few = options.quick
    print_host_time(python, 10 if few else 100)
    print_overlap(python, 5 if few else 50)
    print_density(python, 3 if few else 40, 2 if few else PROCESSES)
    print_warp(python, 5 if few else 1000, 3 if few else 20)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return 0


def newest_torch() -> Path | None:
    found = sorted(CACHE.glob("[0-9]*/bin/python"), key=lambda path: [int(part) for part in path.parts[-3].split(".")])
    return found[-1] if found else None


# ---- the core


LAUNCHES = r"""
#define _GNU_SOURCE
#include "core.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int count, char **words) {
    int launches = count > 1 ? atoi(words[1]) : 0;
    const unsigned one[3] = {1, 1, 1};
    emu_start();
    emu_stream *stream = emu_stream_default(0);
    emu_kernel *kernel = emu_kernel_named("kernel");
    emu_launch_kernel(stream, kernel, one, one, NULL);
    double began = now_ns();
    for (int i = 0; i < launches; i++)
        emu_launch_kernel(stream, kernel, one, one, NULL);
    printf("%f\n", (now_ns() - began) / launches);
    return 0;
}
"""
SETTINGS = """emugpu-cuda 1
estimator roofline
{more}device 0
memory_bytes 1073741824
flops_fp32 1e13
memory_bytes_per_s 1e12
kernel_ns 1
"""
"""Kernels that take next to no time, so that no launch waits for room in the queue."""
VARIANTS = {
    "estimated": "",
    "constant": "estimator constant\nconstant_ns 1\n",
    "anchored": "anchor 1.1\n",
    "while a step is sought": "step_ns 100000000\nlog 0\n",
}


def print_launches(launches: int) -> None:
    """Processor time of a call of emu_launch_kernel, the least of five runs."""
    libraries = built()
    sources = Path(__file__).parents[2] / "emulator_runtime" / "cuda" / "src" / "core"
    with tempfile.TemporaryDirectory() as folder:
        program, settings = Path(folder) / "launches", Path(folder) / "settings"
        program.with_suffix(".c").write_text(LAUNCHES)
        link = [str(libraries / CORE), f"-Wl,-rpath,{libraries}"]
        subprocess.run(["cc", "-O2", f"-I{sources}", f"{program}.c", "-o", str(program), *link], check=True)
        for name, more in VARIANTS.items():
            settings.write_text(SETTINGS.format(more=more))
            environment = os.environ | {"EMUGPU_CUDA_SETTINGS": str(settings)}
            runs = [
                float(
                    subprocess.run(
                        [str(program), str(launches)], env=environment, capture_output=True, check=True
                    ).stdout
                )
                for _ in range(5)
            ]
            print(
                f"launch in the core, {name:24}{min(runs):8.0f} ns (at most {max(runs):.0f}; wanted <= 100)", flush=True
            )


# ---- PyTorch


def emugpu_run(python: Path, code: str, count: int, *options: str) -> list[str]:
    program = STEP + textwrap.dedent(code)
    command = [sys.executable, "-m", "emugpu", "run", "--log", "0", *options, "--"]
    return [*command, str(python), "-W", "ignore", "-c", program, str(count)]


def result(command: Sequence[str]) -> list | dict:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def print_host_time(python: Path, steps: int) -> None:
    times = result(emugpu_run(python, HOST, steps, "--warp", "--time", "1us"))
    print(
        f"ResNet-50, batch 64, host time of a step: median {statistics.median(times):.1f} ms, least {min(times):.1f} "
        "(wanted <= 25)",
        flush=True,
    )


def print_overlap(python: Path, steps: int) -> None:
    found = result(emugpu_run(python, OVERLAP, steps, "--anchor-to", "100ms"))
    print("60 ms of loading beside a step of 100 ms:")
    for name, wanted in (("no loading", "100"), ("asynchronous", "<= 103"), ("with .item()", "160 +- 3")):
        print(f"  {name:16}{found[name]:8.1f} ms a step (wanted {wanted})", flush=True)


def print_density(python: Path, steps: int, processes: int) -> None:
    """All begin together once all are ready."""
    command = emugpu_run(python, DENSITY, steps, "--gpu-type", "V100", "--anchor-to", "275ms")
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a process ended early")
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        rows = [json.loads(process.communicate()[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    steps_ms, used_ms = zip(*rows, strict=True)
    print(
        f"{processes} processes with steps of 275 ms on {os.cpu_count()} cores: {min(steps_ms):.1f} to {max(steps_ms):.1f} ms "
        f"(wanted <= 290), {statistics.mean(used_ms):.0f} ms of a core for each step",
        flush=True,
    )


def print_warp(python: Path, steps: int, waited_steps: int) -> None:
    """The program's own clock, the host's, and the processor's, for the same loop. Without warp a few steps are measured, and
    the rest is proportional."""
    emulated_s, host_s, used_s = result(emugpu_run(python, WARP, steps, "--gpu-type", "H100", "--warp"))
    _, waited_s, _ = result(emugpu_run(python, WARP, waited_steps, "--gpu-type", "H100"))
    print(
        f"{steps} steps of ResNet-50 on an H100 in warp: {host_s:.1f} s, of which the program computed {used_s:.1f} s; its clock "
        f"says {emulated_s:.1f} s"
    )
    step_s = waited_s / waited_steps
    print(f"  without warp {step_s * steps:.1f} s, by {waited_steps} steps of {step_s * 1e3:.1f} ms", flush=True)
