"""`python -m operators.chart_hooks.prepare`: work before an install or upgrade that Helm doesn't do; run by the chart's hook.

Helm installs the files of crds/ once and never upgrades them, and can't label the namespace that it creates. This program applies
the definitions of a directory (server-side, as their owner) and labels the namespace for Pod Security, which the node daemons
need where it is enforced: they share the host's process ids and mount host directories.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.settings import EnvSettings, run_daemon, setting
from operators.kube.api import CRD, NAMESPACE, Api, applied
from operators.kube.client import KubeApi

FIELD_MANAGER = "emugpu-prepare"
LEVELS = ("enforce", "audit", "warn")


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_PREPARE_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_PREPARE_"

    definitions: str = setting("directory of CustomResourceDefinitions, one JSON file each; empty: none", "")
    namespace: str = setting("namespace to label as privileged for Pod Security; empty: none", "")


async def prepare(api: Api, settings: Settings, say: Callable[[str], None]) -> None:
    """Raises InputError for a file that is no definition, and what Api raises."""
    for document in _definitions(settings.definitions):
        name = document["metadata"]["name"]
        await api.apply(CRD, name, document, FIELD_MANAGER)
        say(f"{name} applied")
    if settings.namespace:
        labels = {f"pod-security.kubernetes.io/{level}": "privileged" for level in LEVELS}
        document = applied(NAMESPACE, settings.namespace, "", metadata={"labels": labels})
        await api.apply(NAMESPACE, settings.namespace, document, FIELD_MANAGER)
        say(f"namespace {settings.namespace} labelled")


def _definitions(directory: str) -> list[dict[str, Any]]:
    if not directory:
        return []
    variable = Settings.variable("definitions")
    files = sorted(Path(directory).glob("*.json"))
    if not files:
        raise InputError(variable, f"{directory} has no .json file; mount the chart's definitions there")
    return [_definition(path) for path in files]


def _definition(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"can't be read as JSON: {error}") from error
    if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and metadata.get("name"):
            return document
    raise InputError(str(path), "is no CustomResourceDefinition with a name")


def main(argv: list[str]) -> int:
    purpose = "Applies the chart's resource definitions and labels its namespace."
    return run_daemon(
        argv, "operators.chart_hooks.prepare", purpose, Settings, lambda settings: asyncio.run(_run(settings))
    )


async def _run(settings: Settings) -> None:
    api = KubeApi()
    try:
        await prepare(api, settings, lambda text: print(text, flush=True))
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
