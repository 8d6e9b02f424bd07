"""What the jobs controller's program needs to run this controller too (it acts under the same lease)."""

from __future__ import annotations

import json
from typing import Any

from emulator_runtime.domain.errors import InputError, UnknownNameError
from operators.experiments.controller.controller import Controller, Dependencies, ExperimentMetrics
from operators.experiments.controller.runner_job import RunnerSettings

__all__ = ["Controller", "Dependencies", "ExperimentMetrics", "runner_settings"]

_POD = {"resources": dict, "nodeSelector": dict, "tolerations": list, "priorityClassName": str}


def runner_settings(
    *, namespace: str, account: str, image: str, pull_policy: str, pull_secrets: str, pod: tuple[str, str]
) -> RunnerSettings:
    """`pull_secrets` by commas; `pod`: name and value of a variable. Raises InputError that names it."""
    members = _pod_members(*pod)
    return RunnerSettings(
        namespace=namespace,
        account=account,
        image=image,
        pull_policy=pull_policy,
        pull_secrets=tuple(name.strip() for name in pull_secrets.split(",") if name.strip()),
        resources=members.pop("resources", {}),
        placement={name: value for name, value in members.items() if value},
    )


def _pod_members(variable: str, text: str) -> dict[str, Any]:
    try:
        members = json.loads(text)
    except ValueError as error:
        raise InputError(variable, f"is no JSON: {error}") from error
    if not isinstance(members, dict):
        raise InputError(variable, f"must be a JSON object with {', '.join(_POD)}")
    for name, value in members.items():
        if name not in _POD:
            raise UnknownNameError(variable, "member", name, _POD)
        if not isinstance(value, _POD[name]):
            raise InputError(f"{variable}: {name}", f"must be a JSON {_POD[name].__name__}, not {value!r}")
    return members
