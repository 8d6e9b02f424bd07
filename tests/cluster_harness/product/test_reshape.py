"""Which pools stand side by side during a move, and when it is over."""

from __future__ import annotations

import pytest

from cluster_harness.nodes.kubectl import Node
from cluster_harness.product.reshape import (
    CONTROLLERS_LABEL,
    not_moved,
    removed_pools,
    renames,
    side_by_side,
    unobserved,
)
from cluster_harness.request.spec import ClusterSpec, PoolSpec

OLD = ClusterSpec("dev", (PoolSpec("a", 2, 4, "V100"), PoolSpec("b", 1, 8, "A100"), PoolSpec("cpu", 1, 0, "")))


def spec(*pools: PoolSpec) -> ClusterSpec:
    return ClusterSpec("dev", pools)


def test_the_new_pool_wins_under_an_equal_name() -> None:
    new = spec(PoolSpec("c", 2, 4, "V100"), PoolSpec("b", 1, 2, "T4"))
    assert side_by_side(OLD, new).pools == (*new.pools, OLD.pools[0])
    assert removed_pools(OLD, new) == ["a"]


@pytest.mark.parametrize(
    ("pools", "answer"),
    [
        ((PoolSpec("a", 1, 8, "T4"), PoolSpec("b", 2, 1, "T4")), False),
        ((PoolSpec("b", 3, 8, "A100"), PoolSpec("a", 1, 4, "V100")), False),
        ((PoolSpec("a", 3, 4, "V100"),), True),
        ((*OLD.pools, PoolSpec("c", 1, 4, "V100")), True),
        ((*OLD.pools[:2], PoolSpec("other", 1, 0, "")), False),
        ((*OLD.pools[:2], PoolSpec("cpu", 1, 0, "", "24")), True),
    ],
)
def test_only_names_of_pools_with_gpus_make_a_move(pools: tuple[PoolSpec, ...], answer: bool) -> None:
    assert renames(OLD, spec(*pools)) is answer


def test_a_name_that_becomes_one_of_nodes_without_gpus_does_not_stay() -> None:
    new = spec(PoolSpec("a", 3, 0, ""), PoolSpec("b", 1, 8, "A100"))
    assert side_by_side(OLD, new) == new


def test_pools_that_the_controller_has_not_seen_as_they_are() -> None:
    seen = {"metadata": {"name": "a", "generation": 2}, "status": {"observedGeneration": 2}}
    old = {"metadata": {"name": "b", "generation": 2}, "status": {"observedGeneration": 1}}
    new = {"metadata": {"name": "c", "generation": 1}}
    assert unobserved([seen]) is None
    assert unobserved([seen, old, new]) == "the controller hasn't observed b, c"


def test_nodes_that_have_not_moved() -> None:
    nodes = [Node(n, "", {CONTROLLERS_LABEL: p} if p else {}) for n, p in ("xa", "yb", ("z", ""))]
    assert not_moved(nodes, ["a", "gone"]) == "x (a) still have devices of pools that are removed"
    assert not_moved(nodes, ["gone"]) is None
