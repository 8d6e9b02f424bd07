"""Lets the real requests of a running job's pods follow their emulated CPUs and memory, in place (spec.native.follow).

The pods' own annotation counts, which a job-level scheduler changes while they run (node/allocation.py); a pod without it
stays as it was created. A refused resize is reported and has no other effect: the job still has its emulated share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator_runtime.domain.sensitivity import HostShare
from operators.objects.emujob import EmuJobSpec
from operators.objects.native import Amounts, exact_amounts
from operators.objects.pod import RESIZE_IN_PROGRESS, Pod
from operators.objects.scheduler_notes import read_allocation

Resources = Mapping[str, Amounts]
"""Of a container: requests, and limits if there are any."""

TROUBLES = ("Refused", "Infeasible", "Deferred", "Error")
"""Reasons why pods weren't resized, from the API server and the kubelet."""
_AGAIN_NS = 60 * 10**9
"""Interval of further attempts after a refusal: quotas and nodes change."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server refused these resources for a pod, at `at_ns`."""

    resources: Resources
    problem: str
    at_ns: int

    def of(self, resources: Resources | None) -> bool:
        return self.resources == resources

    def is_old(self, now_ns: int) -> bool:
        """Another attempt is due; also if the clock was set back."""
        return not 0 <= now_ns - self.at_ns < _AGAIN_NS


class ResizeRefusals:
    """By EmuJob and by uid of a pod, until the pod is gone."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Refusal]] = {}

    def note(self, job: str, pod: str, refusal: Refusal) -> None:
        self._known.setdefault(job, {})[pod] = refusal

    def of(self, job: str, pods: Iterable[Pod]) -> Mapping[str, Refusal]:
        """Of these pods, which are all pods of the EmuJob."""
        known = self._known.pop(job, {})
        kept = {pod.key.uid: known[pod.key.uid] for pod in pods if pod.key.uid in known}
        if kept:
            self._known[job] = kept
        return kept


def wanted_of(spec: EmuJobSpec, pod: Pod) -> Resources | None:
    """The resources that the pod's container must request; None: it does, or its allocation is unknown."""
    requests, limits = _followed(spec, pod)
    if _holds(requests, pod.sizing.requests) and _holds(limits, pod.sizing.limits):
        return None
    return {"requests": requests, **({"limits": limits} if limits else {})}


def resized(spec: EmuJobSpec, pods: Iterable[Pod], refusals: Mapping[str, Refusal]) -> tuple[str, str, str]:
    """Status, reason and message of the condition Resized, over all these pods. `refusals`: by uid of a pod."""
    answer = ("Unknown", "NoPods", "")
    for pod in pods:
        wanted, (reason, message) = wanted_of(spec, pod), pod.sizing.trouble
        refusal = refusals.get(pod.key.uid)
        if refusal is not None and refusal.of(wanted):
            return "False", "Refused", refusal.problem
        if wanted is None and reason in TROUBLES:
            return "False", reason, f"pod {pod.key.name}: {message}"
        if wanted is not None or reason or not pod.sizing.seen_by_kubelet:
            answer = ("False", RESIZE_IN_PROGRESS, "")
        elif answer[0] == "Unknown":
            amounts = _followed(spec, pod)[0]
            answer = ("True", "AsAllocated", ", ".join(f"{name} {amounts[name]}" for name in sorted(amounts)))
    return answer


def _followed(spec: EmuJobSpec, pod: Pod) -> tuple[Amounts, Amounts]:
    """Amounts that the allocation doesn't state are the configuration's, as for the pod's manager (node/allocation.py)."""
    given = read_allocation(pod.allocation, f"pod {pod.key}")
    if given is None:
        return {}, {}
    own = spec.configuration(given.configuration)
    share = HostShare(given.cpu_milli or own.cpu_milli, given.memory_bytes or own.memory_bytes)
    return spec.native.followed(share)


def _holds(wanted: Amounts, asked: Mapping[str, object]) -> bool:
    return all(asked.get(name) == amount for name, amount in exact_amounts(wanted).items())
