"""The webhook's settings, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.layout import GPU_RESOURCE
from emulator_runtime.node.settings import EnvSettings, setting
from operators.admission.review import ALIAS


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_ADMISSION_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_ADMISSION_"

    certificates: str = setting("directory with tls.crt and tls.key; read again when they change")
    alias: str = setting("the short name that pods may use", ALIAS)
    resource: str = setting("the full name that it stands for", GPU_RESOURCE)
    port: int = setting("port of the webhook (HTTPS)", 8443, least=1, most=65535)
