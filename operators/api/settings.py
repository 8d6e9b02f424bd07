"""The API's settings, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.settings import EnvSettings, setting


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_API_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_API_"

    host: str = setting("address to listen on; empty: all", "")
    port: int = setting("port of the API and the dashboard (HTTP)", 9404, most=65535)
    results_url: str = setting("http://HOST:PORT of the jobs controller's results feed; empty: no results are read", "")
    results_token: str = setting("file with the token for the feed", "/var/run/secrets/emugpu.dev/results/token")
    title: str = setting("what the pages call the cluster", "this cluster")
    hosts: str = setting("accepted Host headers (NAME:PORT), comma-separated; empty: any", "")
    session_s: int = setting(
        "how long a browser stays signed in (seconds, 60 to 604800)", 28_800, least=60, most=604_800
    )
