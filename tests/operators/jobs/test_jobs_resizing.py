"""What pods really ask for follows the shares that a scheduler gives a running job, and what nobody grants is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.jobs.cluster_cache import ClusterCache
from operators.jobs.plan import ResizePod
from operators.jobs.resizing import Refusal, ResizeRefusals
from operators.kube.documents import Key
from operators.objects.names import ALLOCATION
from operators.objects.pod import Pod, Sizing

Worlds = Any
WORK: dict[str, Any] = {"steps": 100, "stepTime": "1s", "resources": {"cpu": 2, "memory": "8Gi"}}
BY_JOBS: dict[str, Any] = {"scheduler": {"actuator": "jobs", "name": "s"}}
FOLLOW: dict[str, Any] = {"native": {"follow": {"cpu": "50m", "memory": "0.01"}}}
GIB = 2**30


def allocation(cpu_milli: int = 0, memory_bytes: int = 0) -> str:
    return f'{{"configuration":"default","nodes":["w1"],"cpu_milli":{cpu_milli},"memory_bytes":{memory_bytes}}}'


def started(world: Worlds, text: str, **spec: Any) -> Any:
    """A job that runs with this share."""
    at = world({**WORK, **BY_JOBS, **FOLLOW, **spec})
    at.settle()
    at.allocate(text)
    at.kubernetes()
    at.settle()
    assert at.status["phase"] == "Running"
    return at


def divide(at: Any, text: str, **members: Any) -> list[Any]:
    """What a job-level scheduler does while the job runs."""
    at.pods = [replace(pod, annotations={ALLOCATION: text}, **members) for pod in at.pods]
    return resizes(at.settle())


def resizes(actions: list[Any]) -> list[Any]:
    return [dict(action.resources) for action in actions if isinstance(action, ResizePod)]


def told(at: Any) -> str:
    (found,) = [c["message"] for c in at.status["conditions"] if c["type"] == "Resized"]
    return str(found)


def test_a_pod_is_made_for_its_configuration_and_follows_what_it_is_given(world: Worlds) -> None:
    at = started(world, allocation(6000, 16 * GIB))
    (container,) = at.documents[0]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "82Mi"}
    assert resizes(at.log) == [{"requests": {"cpu": "300m", "memory": "164Mi"}}]
    assert (at.condition("Resized"), told(at)) == (("True", "AsAllocated"), "cpu 300m, memory 164Mi")
    assert divide(at, allocation(3000, 16 * GIB)) == [{"requests": {"cpu": "150m", "memory": "164Mi"}}]
    assert (at.status["allocation"]["cpu"], at.status["phase"]) == ("3000m", "Running")
    assert divide(at, allocation()) == [{"requests": {"cpu": "100m", "memory": "82Mi"}}]  # as its configuration says
    assert at.settle() == []


def test_a_limit_follows_too(world: Worlds) -> None:
    native = {"limits": {"cpu": "200m", "memory": "64Mi"}, "follow": {"cpu": "0.1"}}
    at = started(world, allocation(2000), native=native)
    assert resizes(at.log) == []
    assert divide(at, allocation(5000)) == [{"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}]


def test_a_limit_that_somebody_has_changed_is_put_right(world: Worlds) -> None:
    native = {"limits": {"cpu": "200m"}, "follow": {"cpu": "0.1"}}
    at = started(world, allocation(5000), native=native)
    asked = at.pods[0].sizing
    changed = Sizing(asked.requests, {"cpu": 2 * asked.limits["cpu"]})
    assert divide(at, allocation(5000), sizing=changed) == [{"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}]


def test_nothing_is_resized_where_nothing_follows(world: Worlds) -> None:
    at = started(world, allocation(6000), native={})
    assert divide(at, allocation(9000)) == []
    assert at.status["allocation"]["cpu"] == "9000m"  # the newest all the same
    assert "Resized" not in {c["type"] for c in at.status["conditions"]}


def test_without_a_scheduler_pods_stay_as_they_were_made(world: Worlds) -> None:
    at = world({**WORK, **FOLLOW})
    at.settle()
    at.kubernetes()
    at.settle()
    assert resizes(at.log) == [] and (at.condition("Resized"), told(at)) == (("True", "AsAllocated"), "")


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"configuration":"default","nodes":[]}'])
def test_an_allocation_that_cannot_be_read_changes_nothing(world: Worlds, text: str) -> None:
    at = started(world, allocation(2000, 8 * GIB))
    assert divide(at, text) == []


def test_pods_that_are_over_or_end_are_left_alone(world: Worlds) -> None:
    at = started(world, allocation(2000, 8 * GIB))
    assert divide(at, allocation(9000), deleting=True) == []
    assert at.condition("Resized") == ("Unknown", "NoPods")
    assert divide(at, allocation(9000), deleting=False, phase="Succeeded") == []
    at.complete()
    at.settle()
    assert (at.status["phase"], at.condition("Resized")) == ("Succeeded", ("Unknown", "NoPods"))


def test_what_a_kubelet_says_is_in_the_condition_and_told_once(world: Worlds) -> None:
    at = started(world, allocation(2000, 8 * GIB))
    asked = at.pods[0].sizing

    def say(reason: str = "", message: str = "", *, seen_by_kubelet: bool = True) -> tuple[str, str]:
        at.pods = [replace(at.pods[0], sizing=Sizing(asked.requests, asked.limits, (reason, message), seen_by_kubelet))]
        at.settle()
        found: tuple[str, str] = at.condition("Resized")
        return found

    assert say(seen_by_kubelet=False) == ("False", "InProgress")
    assert say("InProgress") == ("False", "InProgress")
    assert say("Deferred", "Node didn't have enough resource: cpu") == ("False", "Deferred")
    assert told(at) == f"pod {at.pods[0].key.name}: Node didn't have enough resource: cpu"
    assert say("Deferred", "still not") == ("False", "Deferred")
    assert say("Infeasible", "never") == ("False", "Infeasible")
    assert say() == ("True", "AsAllocated")
    assert [reason for reason in at.told() if reason.startswith("Resize")] == ["ResizeDeferred", "ResizeInfeasible"]


def test_what_the_api_server_refuses_is_reported_and_asked_for_again_a_minute_later(world: Worlds) -> None:
    at = started(world, allocation(2000, 8 * GIB))
    at.pods = [replace(at.pods[0], annotations={ALLOCATION: allocation(9000, 8 * GIB)})]
    (asked,) = [action for action in at.plan() if isinstance(action, ResizePod)]
    at.refusals = {at.pods[0].key.uid: Refusal(asked.resources, "patch pods j-2: exceeded quota", at.now_ns)}
    assert resizes(at.settle()) == []
    assert (at.condition("Resized"), told(at)) == (("False", "Refused"), "patch pods j-2: exceeded quota")
    assert at.told()[-1] == "ResizeRefused"
    at.later(59)
    assert at.settle() == []
    at.later(1)
    assert [type(action) for action in at.plan()] == [ResizePod]  # and not told again until something else is so
    assert resizes(at.settle()) == [{"requests": {"cpu": "450m", "memory": "82Mi"}}]
    assert at.condition("Resized") == ("True", "AsAllocated")


def test_another_share_is_not_what_was_refused(world: Worlds) -> None:
    at = started(world, allocation(2000, 8 * GIB))
    at.refusals = {at.pods[0].key.uid: Refusal({"requests": {"cpu": "450m", "memory": "82Mi"}}, "no", at.now_ns)}
    assert divide(at, allocation(4000, 8 * GIB)) == [{"requests": {"cpu": "200m", "memory": "82Mi"}}]
    assert at.condition("Resized") == ("True", "AsAllocated")


def test_refusals_are_forgotten_with_their_pods() -> None:
    refusals, refusal = ResizeRefusals(), Refusal({}, "no", 0)
    pods = [Pod(Key("lab", name, name)) for name in ("a", "b")]
    for pod in pods:
        refusals.note("lab/j", pod.key.uid, refusal)
    assert refusals.of("lab/j", pods) == {"a": refusal, "b": refusal}
    assert refusals.of("lab/j", pods[:1]) == {"a": refusal}
    assert refusals.of("lab/j", pods) == {"a": refusal}
    assert refusals.of("lab/k", pods) == {}


def test_refusals_are_forgotten_with_their_emujob() -> None:
    known = ClusterCache(lambda _name: None, lambda _before, _after: None, lambda: 0)
    document, pod = {"metadata": {"namespace": "lab", "name": "j", "uid": "u"}}, Pod(Key("lab", "j-0", "pod"))
    known.emujobs.update("ADDED", document)
    known.refusals.note("lab/j", "pod", Refusal({}, "no", 0))
    known.emujobs.update("DELETED", document)
    assert known.refusals.of("lab/j", [pod]) == {}
