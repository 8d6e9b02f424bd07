"""The columns of --query-gpu and --query-compute-apps, named as nvidia-smi names them (`nvidia-smi --help-query-gpu`).

Properties that aren't emulated are [N/A], which the real tool prints for properties that a GPU lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from emugpu import VERSION
from emugpu.smi.devices import Gpu, Process
from emugpu.smi.spelling import nearest
from emulator_runtime.domain.mig import TYPE_SEPARATOR
from emulator_runtime.domain.units import MIB
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.timing.host import wall_ns

NOT_KNOWN = "[N/A]"
LOST = "[GPU is lost]"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of output: a GPU among all, or a process on it."""

    gpu: Gpu
    count: int
    process: Process | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """`unit` is printed after the values and in the header; `value` returns None if the property isn't known."""

    header: str
    unit: str
    value: Callable[[Row], str | None]


def mib(amount_bytes: int) -> int:
    """MiB, rounded to the nearest."""
    return (amount_bytes + MIB // 2) // MIB


def percent(share: float) -> int:
    """From 0 to 100, rounded to the nearest."""
    return min(100, max(0, int(share * 100 + 0.5)))


def _timestamp(_: Row) -> str:
    now = datetime.fromtimestamp(wall_ns() / 1e9, UTC).astimezone()
    return f"{now:%Y/%m/%d %H:%M:%S}.{now.microsecond // 1000:03d}"


def _used(row: Row) -> str | None:
    return _telemetry(row.gpu, None if row.gpu.used_bytes is None else mib(row.gpu.used_bytes))


def _free(row: Row) -> str | None:
    gpu = row.gpu
    return _telemetry(gpu, None if gpu.used_bytes is None else mib(gpu.memory_bytes) - mib(gpu.used_bytes))


def _load(row: Row) -> str | None:
    return _telemetry(row.gpu, None if row.gpu.utilisation is None else percent(row.gpu.utilisation))


def _telemetry(gpu: Gpu, value: int | None) -> str | None:
    if gpu.healthy is False:
        return LOST
    return None if value is None else str(value)


def _compute_cap(row: Row) -> str | None:
    name = bundled_catalogue().find(row.gpu.name.rpartition(TYPE_SEPARATOR)[0] if row.gpu.mig_gpu else row.gpu.name)
    return bundled_catalogue().specs[name].compute_capability if name else None


def _mig_mode(row: Row) -> str | None:
    return "Enabled" if row.gpu.mig_gpu else None


def _process(fact: Callable[[Process], str | None]) -> Callable[[Row], str | None]:
    return lambda row: None if row.process is None else fact(row.process)


def _not_known(_: Row) -> None:
    return None


_NAME = Column("name", "", lambda row: row.gpu.name)
_UUID = Column("uuid", "", lambda row: row.gpu.uuid)
_USED_BY_PROCESS = Column("used_gpu_memory", "MiB", _process(lambda process: str(mib(process.used_bytes))))
_PROCESS_NAME = Column("process_name", "", _process(lambda process: process.name))

GPU_COLUMNS: Mapping[str, Column] = {
    "timestamp": Column("timestamp", "", _timestamp),
    "driver_version": Column("driver_version", "", lambda row: f"emugpu-{VERSION}"),
    "count": Column("count", "", lambda row: str(row.count)),
    "index": Column("index", "", lambda row: str(row.gpu.index)),
    "name": _NAME,
    "gpu_name": _NAME,
    "uuid": _UUID,
    "gpu_uuid": _UUID,
    "serial": Column("serial", "", _not_known),
    "pci.bus_id": Column("pci.bus_id", "", _not_known),
    "vbios_version": Column("vbios_version", "", _not_known),
    "compute_cap": Column("compute_cap", "", _compute_cap),
    "compute_mode": Column("compute_mode", "", lambda row: "Default"),
    "persistence_mode": Column("persistence_mode", "", _not_known),
    "display_active": Column("display_active", "", _not_known),
    "mig.mode.current": Column("mig.mode.current", "", _mig_mode),
    "pstate": Column("pstate", "", _not_known),
    "memory.total": Column("memory.total", "MiB", lambda row: str(mib(row.gpu.memory_bytes))),
    "memory.reserved": Column("memory.reserved", "MiB", _not_known),
    "memory.used": Column("memory.used", "MiB", _used),
    "memory.free": Column("memory.free", "MiB", _free),
    "utilization.gpu": Column("utilization.gpu", "%", _load),
    "utilization.memory": Column("utilization.memory", "%", _not_known),
    "temperature.gpu": Column("temperature.gpu", "", _not_known),
    "temperature.memory": Column("temperature.memory", "", _not_known),
    "fan.speed": Column("fan.speed", "%", _not_known),
    "power.draw": Column("power.draw", "W", _not_known),
    "power.limit": Column("power.limit", "W", _not_known),
    "clocks.sm": Column("clocks.current.sm", "MHz", _not_known),
    "clocks.mem": Column("clocks.current.memory", "MHz", _not_known),
}
APP_COLUMNS: Mapping[str, Column] = {
    "timestamp": Column("timestamp", "", _timestamp),
    "gpu_name": Column("gpu_name", "", lambda row: row.gpu.name),
    "gpu_bus_id": Column("gpu_bus_id", "", _not_known),
    "gpu_uuid": Column("gpu_uuid", "", lambda row: row.gpu.uuid),
    "pid": Column("pid", "", _process(lambda process: None if process.pid is None else str(process.pid))),
    "process_name": _PROCESS_NAME,
    "name": _PROCESS_NAME,
    "used_gpu_memory": _USED_BY_PROCESS,
    "used_memory": _USED_BY_PROCESS,
}


def chosen(names: str, columns: Mapping[str, Column]) -> list[Column] | str:
    """The columns in a comma-separated list of names, or what is wrong with the list."""
    found = []
    for name in names.split(","):
        column = columns.get(name.strip())
        if column is None:
            return f'Field "{name.strip()}" is not a valid field to query; {nearest(name.strip(), columns)}'
        found.append(column)
    return found


def csv_lines(rows: Sequence[Row], columns: Sequence[Column], *, header: bool, units: bool) -> list[str]:
    """As `--format=csv[,noheader][,nounits]` prints them; the header keeps its units."""
    lines = [", ".join(c.header + (f" [{c.unit}]" if c.unit else "") for c in columns)] if header else []
    for row in rows:
        lines.append(", ".join(_cell(column, row, units=units) for column in columns))
    return lines


def _cell(column: Column, row: Row, *, units: bool) -> str:
    value = column.value(row)
    if value is None:
        return NOT_KNOWN
    return f"{value} {column.unit}" if units and column.unit and value != LOST else value
