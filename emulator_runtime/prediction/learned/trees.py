"""Regression trees as arrays, and the walk through them: what scikit-learn trains is stored and evaluated without it.

A node has a feature's number and a threshold; a value that isn't above the threshold goes left. A leaf has the feature -1.
Children have larger numbers than their node, so that each walk ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack, unpack
from typing import Any

from emulator_runtime.domain.errors import InputError

LEAF = -1
MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class Tree:
    """Arrays of the same length, by node; node 0 is the root. `value`: of leaves; that of other nodes isn't used."""

    feature: Sequence[int]
    threshold: Sequence[float]
    left: Sequence[int]
    right: Sequence[int]
    value: Sequence[float]

    def predict(self, x: Sequence[float]) -> float:
        """The value of the leaf to which these features lead."""
        node = 0
        while self.feature[node] != LEAF:
            goes_left = x[self.feature[node]] <= self.threshold[node]
            node = (self.left if goes_left else self.right)[node]
        return self.value[node]


@dataclass(frozen=True, slots=True)
class Forest:
    """The mean of its trees; 0 without any."""

    trees: Sequence[Tree]

    def predict(self, x: Sequence[float]) -> float:
        """As scikit-learn does, which keeps features as 32-bit floats."""
        if not self.trees:
            return 0.0
        rounded = unpack(f"{len(x)}f", pack(f"{len(x)}f", *x))
        return sum(tree.predict(rounded) for tree in self.trees) / len(self.trees)


def forest_document(forest: Forest) -> list[dict[str, list[int] | list[float]]]:
    """For a file; `read_forest` reads it."""
    return [
        {
            "feature": list(tree.feature),
            "threshold": list(tree.threshold),
            "left": list(tree.left),
            "right": list(tree.right),
            "value": list(tree.value),
        }
        for tree in forest.trees
    ]


def read_forest(document: object, features: int, place: str) -> Forest:
    """Raises InputError, which names the place of what is wrong. `features`: how many there are."""
    if not isinstance(document, list):
        raise InputError(place, "must be a list of trees")
    return Forest([_read_tree(tree, features, f"{place}[{number}]") for number, tree in enumerate(document)])


def _read_tree(document: object, features: int, place: str) -> Tree:
    if not isinstance(document, dict):
        raise InputError(place, "must be a tree: feature, threshold, left, right and value of its nodes")
    columns: dict[str, Any] = {name: document.get(name) for name in ("feature", "threshold", "left", "right", "value")}
    size = len(columns["feature"]) if isinstance(columns["feature"], list) else 0
    if not 0 < size <= MOST_NODES:
        raise InputError(f"{place}.feature", f"must be a list of 1 to {MOST_NODES:,} numbers")
    for name, column in columns.items():
        whole = name not in ("threshold", "value")
        if not isinstance(column, list) or len(column) != size or not all(_is_number(each, whole) for each in column):
            kind = "whole numbers" if whole else "finite numbers"
            raise InputError(f"{place}.{name}", f"must be a list of {size} {kind}, one for each node")
    tree = Tree(**columns)
    for node in range(size):
        _check_node(tree, node, features, place)
    return tree


def _is_number(value: object, whole: bool) -> bool:  # noqa: FBT001 - two words of one question
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if whole else isinstance(value, int | float) and math.isfinite(value)


def _check_node(tree: Tree, node: int, features: int, place: str) -> None:
    number = tree.feature[node]
    if number == LEAF:
        return
    if not 0 <= number < features:
        raise InputError(f"{place}.feature[{node}]", f"there is no feature {number}, only 0 to {features - 1}")
    for name, child in (("left", tree.left[node]), ("right", tree.right[node])):
        if not node < child < len(tree.feature):
            last = len(tree.feature) - 1
            raise InputError(f"{place}.{name}[{node}]", f"must be a node after {node}, up to {last}, not {child}")
