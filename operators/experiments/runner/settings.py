"""The runner's settings, from the environment: which experiment it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.settings import EnvSettings, setting


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_EXPERIMENT_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_EXPERIMENT_"

    namespace: str = setting("namespace of the SchedulingExperiment")
    name: str = setting("its name")
    uid: str = setting("its uid: another one of this name is not meant")
    id: str = setting("what namespaces and schedulers of its runs are called by")
