"""The output of `emugpu train`: on a terminal one line that is updated, in a log one line every five seconds, and with
--json one JSON object at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TextIO

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import NS_PER_S, gib
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads.ranks.group import Start
from emulator_runtime.workloads.records import ObservedStepTimes, StepLog, StepRecord
from emulator_runtime.workloads.step_costs.request import StepPlan, TrainRequest

LOG_EVERY_NS = 5 * NS_PER_S
TERMINAL_EVERY_NS = NS_PER_S // 10
_BAR = 30


class TrainReport:
    """Prints the progress of a run (a pod_training.Observer). `prefix` names the rank if there are several."""

    def __init__(self, request: TrainRequest, out: TextIO, *, prefix: str = "", log: StepLog | None = None) -> None:
        self._request = request
        self._out = out
        self._prefix = prefix
        self._log = log
        self._terminal = out.isatty()
        self._done = 0
        self._first = 0
        self._steps = request.steps
        self._began_ns: int | None = None
        self._told_ns = 0
        self._samples = 0
        self._line_open = False

    def planned(self, start: Start, devices: Sequence[AttachedDevice], plan: StepPlan) -> None:
        """Print one line before the first step."""
        run, length, unit = self._request.run_from(start.first), self._request.length, self._request.unit
        self._done = self._first = run.first_step
        self._steps = run.steps
        types = sorted({device.gpu_type for device in devices})
        names = " + ".join(f"{sum(d.gpu_type == name for d in devices)} x {name}" for name in types)
        total = f" of {start.gpus} GPUs" if start.gpus > len(devices) else ""
        parts = [f"{names or 'CPUs'}{total} (emulated)", self._request.title, f"{plan.step_s * 1e3:.2f} ms a step"]
        if plan.reduce_s:
            parts.append(f"{plan.exposed_s * 1e3:.2f} ms of them communication")
        if plan.stages:
            parts.append(f"{plan.alone_s * 1e3:.2f} ms with its input and exchange")
        if plan.extrapolated:
            parts.append("beyond what was measured")
        if len(types) > 1:
            parts.append(f"paced by {plan.slowest}")
        if devices:
            parts.append(f"{gib(plan.peak_bytes)} of memory")
        parts.append(f"goes on at {unit} {start.first} of {length}" if start.first else f"{length} {unit}s")
        self._samples = self._request.batch_size
        self.tell("; ".join(parts))

    def share_changed(self, step: int, host: HostShare, plan: StepPlan) -> None:
        """Print the new CPUs and memory of the job, which apply from this step on."""
        memory = f" and {gib(host.memory_bytes)}" if host.memory_bytes else ""
        share = f"{host.cpu_milli / 1000:g} CPUs{memory}"
        self.tell(f"from step {step} on with {share}: {plan.alone_s * 1e3:.2f} ms a step")

    def stepped(self, record: StepRecord) -> None:
        """Record a finished step; prints the progress at intervals."""
        if self._log is not None:
            self._log.add(record)
        self._done = record.step + 1
        self._tick(record.seen_ns)

    def waiting(self, now_ns: int) -> None:
        """Print the progress during a long step."""
        self._tick(now_ns)

    def tell(self, line: str) -> None:
        """Print a line."""
        self.end_line()
        print(f"{self._prefix}{line}", file=self._out, flush=True)

    def end_line(self) -> None:
        """End the line that is updated on a terminal."""
        if self._line_open:
            print(file=self._out, flush=True)
            self._line_open = False

    def _tick(self, now_ns: int) -> None:
        if self._began_ns is None:
            self._began_ns = self._told_ns = now_ns
        if now_ns - self._told_ns < (TERMINAL_EVERY_NS if self._terminal else LOG_EVERY_NS):
            return
        self._told_ns = now_ns
        line = self._progress((now_ns - self._began_ns) / NS_PER_S)
        if self._terminal:
            filled = _BAR * self._done // self._steps
            print(
                f"\r{self._prefix}[{'#' * filled}{'.' * (_BAR - filled)}] {line}\x1b[K",
                end="",
                file=self._out,
                flush=True,
            )
            self._line_open = True
        else:
            self.tell(line)

    def _progress(self, elapsed_s: float) -> str:
        steps = self._steps
        rate = (self._done - self._first) / elapsed_s if elapsed_s else 0.0
        line = f"step {self._done}/{steps} ({self._done / steps:.0%}), {rate:.2f} steps/s"
        if self._samples:
            line += f", {rate * self._samples:.1f} samples/s"
        return f"{line}, {(steps - self._done) / rate:.0f} s left" if rate else line


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """The result of a run; times are seconds. `plan`: None if the run ended before it was known. `pace_s`: the average
    planned step time if the plan changed during the run. `unit`: in what `steps_done` is counted, step or sample."""

    outcome: str
    steps_done: int
    steps_run: int
    plan: StepPlan | None
    seen: ObservedStepTimes
    lags: LagHistogram
    samples_per_step: int = 0
    reason: str = ""
    devices: tuple[AttachedDevice, ...] = ()
    pace_s: float | None = None
    unit: str = "step"

    def to_json(self) -> dict[str, object]:
        """All values, for programs."""
        median, p95, p99 = self.seen.quantiles_s(0.5, 0.95, 0.99)
        facts: dict[str, object] = {
            "outcome": self.outcome,
            "reason": self.reason,
            f"{self.unit}s_done": self.steps_done,
            "steps_run": self.steps_run,
            "devices": [asdict(device) for device in self.devices],
            "profiled_step_s": self.profiled_step_s,
            "total_s": self.seen.total_s,
            "step_s": {"mean": self.seen.mean_s, "median": median, "p95": p95, "p99": p99},
            "lag_s": {
                "p50": self.lags.quantile_ns(0.5) / NS_PER_S,
                "p99": self.lags.quantile_ns(0.99) / NS_PER_S,
                "max": self.lags.max_ns / NS_PER_S,
            },
            "samples_per_s": self.samples_per_s,
        }
        if self.plan is not None:
            facts["profile"] = {
                "step_s": self.plan.step_s,
                "communication_s": self.plan.exposed_s,
                "all_reduce_s": self.plan.reduce_s,
                "input_s": self.plan.input_s,
                "peak_bytes": self.plan.peak_bytes,
                "batch_per_gpu": self.plan.batch_per_gpu,
                "extrapolated": self.plan.extrapolated,
            }
        return facts

    @property
    def profiled_step_s(self) -> float | None:
        """The step time if no other job uses the devices and the host: with its exchange, or that of the input if longer."""
        if self.pace_s is not None:
            return self.pace_s
        return self.plan.alone_s if self.plan is not None else None

    @property
    def samples_per_s(self) -> float:
        return self.samples_per_step / self.seen.mean_s if self.seen.mean_s else 0.0

    def lines(self) -> list[str]:
        """A summary in a few lines."""
        of_run = f"{self.steps_run} of them" if self.unit == "step" else f"{self.steps_run} steps"
        title = f"{self.outcome}: {self.steps_done} {self.unit}s done, {of_run} in this run"
        lines = [title + (f" ({self.reason})" if self.reason else "")]
        pace = self.profiled_step_s
        if self.steps_run and pace:
            median, p95, p99 = (value * 1e3 for value in self.seen.quantiles_s(0.5, 0.95, 0.99))
            mean = self.seen.mean_s
            lines.append(
                f"step time: mean {mean * 1e3:.3f} ms, median {median:.3f}, p95 {p95:.3f}, p99 {p99:.3f}; "
                f"profile {pace * 1e3:.3f} ms ({mean / pace - 1:+.2%})"
            )
            throughput = f", {self.samples_per_s:.1f} samples/s" if self.samples_per_step else ""
            lines.append(
                f"throughput: {1 / mean:.2f} steps/s{throughput}; lag: p99 {self.lags.quantile_ns(0.99) / 1e6:.3f} ms, "
                f"max {self.lags.max_ns / 1e6:.3f} ms"
            )
        return lines
