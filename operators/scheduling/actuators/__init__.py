"""The table of actuators, by the names that EmuJobs use (spec.scheduler.actuator)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from operators.scheduling.actuators.base import Actuator
from operators.scheduling.actuators.binding import Binding
from operators.scheduling.actuators.gated import Gated
from operators.scheduling.actuators.jobs import Jobs

ACTUATORS: Mapping[str, Actuator] = MappingProxyType({"jobs": Jobs(), "gated": Gated(), "binding": Binding()})
