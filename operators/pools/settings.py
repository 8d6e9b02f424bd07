"""The controller's settings, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.settings import EnvSettings, setting


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_POOLS_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_POOLS_"

    metrics_port: int = setting("port of /metrics, /healthz and /readyz; 0: off", 9402, most=65535)
