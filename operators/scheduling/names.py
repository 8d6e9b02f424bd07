"""Annotations and names of objects that a scheduler uses, and checks of names that users choose."""

from __future__ import annotations

import re

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import quoted
from operators.objects.forms import NO_KEY, NO_VALUE, is_key, is_value
from operators.objects.names import SCHEDULER_NAME, SCHEDULER_NAME_FORM

FIELD_MANAGER = "emugpu-scheduler"
"""The scheduler's name in the managedFields of objects."""

SYSTEM_NAMESPACE = "emugpu-system"
"""The namespace of the Lease and the ConfigMap of a scheduler of all namespaces, unless --lease-namespace names another one."""


def check_name(text: str, place: str, fix: str = "") -> str:
    """Returns the name of a scheduler, a part of object names. Raises InputError at `place`; `fix` ends the message."""
    if not SCHEDULER_NAME.fullmatch(text):
        raise InputError(place, f"{text!r} {SCHEDULER_NAME_FORM}{fix}")
    return text


def check_namespace(text: str, place: str) -> str:
    """Returns a valid namespace, or "". Raises InputError at `place`."""
    if text and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text, re.ASCII):
        raise InputError(place, f"{quoted(text)} is not a namespace: at most 63 small letters, digits and -")
    return text


def check_label(key: str, value: str, place: str) -> None:
    """Raises InputError at `place` for an invalid label."""
    if not is_key(key):
        raise InputError(place, f"{quoted(key)} {NO_KEY}")
    if not is_value(value):
        raise InputError(place, f"{quoted(value)} {NO_VALUE}")


def lasting_name(scheduler: str) -> str:
    """The name of the Lease and the ConfigMap of a scheduler."""
    return f"emugpu-scheduler-{scheduler}"
