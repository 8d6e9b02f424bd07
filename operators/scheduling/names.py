"""The words by which a scheduler program finds its jobs and what it has decided before."""

from __future__ import annotations

import re

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import quoted
from operators.objects.forms import NO_KEY, NO_VALUE, is_key, is_value
from operators.objects.names import SCHEDULER_NAME, SCHEDULER_NAME_FORM

FIELD_MANAGER = "emugpu-scheduler"
"""Under this name its fields are listed in an object's managedFields."""

SYSTEM_NAMESPACE = "emugpu-system"
"""Where a scheduler of all namespaces has its Lease and its memory, unless it is told another place."""
PLANNED_DEVICES = "emugpu.dev/planned-devices"
"""Annotation of what runs: the devices that the scheduler's books count for it. The kubelet picks the real ones."""
ROW = "emugpu.dev/row"
"""Annotation of an EmuJob: its row in its workload, by which jobs of one instant are told apart."""
BATCH = "emugpu.dev/batch"
"""Annotation of an EmuJob: NAME/NUMBER, the jobs that were submitted together with it and how many they are."""


def check_name(text: str, place: str, fix: str = "") -> str:
    """A scheduler's name: part of names of Kubernetes' objects. Raises InputError at `place`; `fix` says what to do."""
    if not SCHEDULER_NAME.fullmatch(text):
        raise InputError(place, f"{text!r} {SCHEDULER_NAME_FORM}{fix}")
    return text


def check_namespace(text: str, place: str) -> str:
    """A namespace, or none (""). Raises InputError at `place`."""
    if text and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text, re.ASCII):
        raise InputError(place, f"{quoted(text)} is no namespace: those are at most 63 small letters, digits and -")
    return text


def check_label(key: str, value: str, place: str) -> None:
    """Raises InputError at `place` for a label that nothing can have."""
    if not is_key(key):
        raise InputError(place, f"{quoted(key)} {NO_KEY}")
    if not is_value(value):
        raise InputError(place, f"{quoted(value)} {NO_VALUE}")


def lasting_name(scheduler: str) -> str:
    """The Lease and the ConfigMap of the scheduler of this name."""
    return f"emugpu-scheduler-{scheduler}"
