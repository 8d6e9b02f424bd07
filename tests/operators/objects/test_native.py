"""What pods really ask for: what is stated, and what follows the emulated CPUs and memory without changing the QoS class."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import GIB
from operators.objects.custom_resource import read_strictly
from operators.objects.native import Follow, Native, exact_amounts
from operators.objects.pod import Sizing, sizing_of

MIB = 2**20


def native(**spec: Any) -> Native:
    return read_strictly(Native, spec, "EmuJob lab/j", "spec.native")


def test_nothing_follows_where_nobody_says_so() -> None:
    assert native().resources(HostShare(24_000, 100 * GIB)) == ({"cpu": "10m", "memory": "32Mi"}, {})
    assert native().followed(HostShare(24_000, 100 * GIB)) == ({}, {})


@pytest.mark.parametrize(
    ("share", "requests"),
    [
        (HostShare(4000, 64 * GIB), {"cpu": "200m", "memory": "64Mi"}),
        (HostShare(4001, 64 * GIB + 1), {"cpu": "201m", "memory": "65Mi"}),  # up to a thousandth and to MiB
        (HostShare(100, GIB), {"cpu": "10m", "memory": "32Mi"}),  # never below what is stated
        (HostShare(200, 32 * GIB), {"cpu": "10m", "memory": "32Mi"}),
        (HostShare(0, 0), {"cpu": "10m", "memory": "32Mi"}),
    ],
)
def test_requests_follow_above_what_is_stated(share: HostShare, requests: dict[str, str]) -> None:
    follows = native(follow={"cpu": "50m", "memory": f"{1000 / 1024 / 1000}"})
    assert follows.resources(share) == (requests, {})
    assert follows.followed(share) == (requests, {})


def test_a_limit_keeps_its_distance() -> None:
    stated = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "0.5", "memory": "1G"}}
    follows = native(**stated, follow={"cpu": "0.05"})
    requests, limits = follows.resources(HostShare(6000, GIB))
    assert (requests, limits) == ({"cpu": "300m", "memory": "64Mi"}, {"cpu": "700m", "memory": "1G"})
    assert follows.followed(HostShare(6000, GIB)) == ({"cpu": "300m"}, {"cpu": "700m"})
    memory = native(**stated, follow={"memory": "0.0625"})
    assert memory.followed(HostShare(1, 2 * GIB)) == ({"memory": "128Mi"}, {"memory": str(10**9 + 64 * MIB)})


def test_a_request_that_is_its_limit_is_written_out() -> None:
    """The API server made it of the limit, and would leave it where it is."""
    follows = native(limits={"cpu": "100m", "memory": "64Mi"}, follow={"cpu": "0.05"})
    assert follows.resources(HostShare(4000)) == (
        {"cpu": "200m"},
        {"cpu": "200m", "memory": "64Mi"},
    )


@given(
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.fractions(Fraction(1, 10**6), 1),
    st.lists(st.integers(0, 10**6), min_size=2, max_size=2),
)
def test_the_qos_class_is_the_same_for_every_share(request: int, room: int, ratio: Fraction, shares: list[int]) -> None:
    """Guaranteed is who has each limit equal to its request (Kubernetes, "Pod Quality of Service Classes")."""
    follows = Native.model_construct(
        stated={"cpu": f"{request}m"},
        limits={"cpu": f"{request + room}m"},
        shares=Follow.model_construct(cpu=ratio, memory=None),
    )
    seen = []
    for share in sorted(shares):
        requests, limits = (exact_amounts(amounts) for amounts in follows.resources(HostShare(share)))
        assert requests["cpu"] >= max(Fraction(request, 1000), ratio * Fraction(share, 1000))
        assert limits["cpu"] - requests["cpu"] == Fraction(room, 1000)
        seen.append(requests["cpu"])
    assert seen == sorted(seen)


def pod(status: dict[str, Any] | None = None, generation: int = 2, **resources: Any) -> dict[str, Any]:
    beside = {"name": "beside", "resources": {"requests": {"cpu": "7"}}}
    containers = [beside, {"name": "train", "resources": resources}]
    return {"metadata": {"generation": generation}, "spec": {"containers": containers}, "status": status or {}}


def test_what_a_pod_asks_for_is_that_of_its_own_container() -> None:
    found = sizing_of(
        pod(requests={"cpu": "0.2", "memory": "64Mi", "emugpu.dev/emuGPU": "1"}, limits={"memory": "odd"})
    )
    assert found == Sizing({"cpu": Fraction(1, 5), "memory": Fraction(64 * MIB)}, {})
    assert sizing_of({"spec": {"containers": [{"name": "other"}]}}) == Sizing()


@pytest.mark.parametrize(
    ("status", "trouble", "heard"),
    [
        ({}, ("", ""), True),
        ({"observedGeneration": 1}, ("", ""), False),
        ({"observedGeneration": 2}, ("", ""), True),
        ({"conditions": [{"type": "PodResizePending", "status": "False", "reason": "Deferred"}]}, ("", ""), True),
        (
            {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no"}]},
            ("Infeasible", "no"),
            True,
        ),
        ({"conditions": [{"type": "PodResizePending", "status": "True"}]}, ("Deferred", ""), True),
        ({"conditions": [{"type": "PodResizeInProgress", "status": "True"}]}, ("InProgress", ""), True),
        (
            {"conditions": [{"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "m"}]},
            ("Error", "m"),
            True,
        ),
    ],
)
def test_what_its_kubelet_says(status: dict[str, Any], trouble: tuple[str, str], heard: bool) -> None:
    found = sizing_of(pod(status))
    assert (found.trouble, found.seen_by_kubelet) == (trouble, heard)
