"""A declared layout of a job's ranks, such as tp=8,pp=64,dp=6: which of them do the same.

Ranks are numbered with the first axis of the order fastest, as Megatron and PyTorch's device meshes do. The ranks of a pipeline
stage do the same; those of different stages don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from emulator_runtime.domain.errors import InputError

ORDER = "tp-cp-ep-dp-pp"
"""Megatron's."""
STAGES = "pp"
"""The axis of the pipeline's stages."""
REST = "dp"
"""The axis that has what is left, if it isn't named."""
_PLACE = "--layout"


@dataclass(frozen=True, slots=True)
class Layout:
    """`sizes`: of each axis, the fastest first."""

    sizes: Mapping[str, int]

    @classmethod
    def of_text(cls, text: str, order: str, world_size: int) -> Layout:
        """An axis that isn't named has size 1; dp, if it isn't named, has what is left. Raises InputError."""
        axes = order.split("-")
        if len(set(axes)) < len(axes) or STAGES not in axes or not all(axes):
            raise InputError("--layout-order", f"must name each axis once, and {STAGES} among them, not {order}")
        sizes = dict.fromkeys(axes, 1)
        named = _sizes(text)
        for axis, size in named.items():
            if axis not in sizes:
                raise InputError(_PLACE, f"there is no axis {axis} in the order {order}")
            sizes[axis] = size
        product = prod(sizes.values())
        if REST in sizes and REST not in named and world_size % product == 0:
            sizes[REST] = world_size // product
        if prod(sizes.values()) != world_size:
            spelled = " x ".join(f"{axis}={size}" for axis, size in sizes.items())
            raise InputError(_PLACE, f"{spelled} are {prod(sizes.values())} ranks, not {world_size} (--world-size)")
        return cls(sizes)

    def place(self, rank: int) -> dict[str, int]:
        """A rank's coordinate on each axis."""
        coordinates = {}
        for axis, size in self.sizes.items():
            rank, coordinates[axis] = divmod(rank, size)
        return coordinates

    def stands_for(self) -> dict[int, tuple[int, ...]]:
        """By the first rank of each pipeline stage, the ranks of that stage."""
        stages: dict[int, list[int]] = {}
        for rank in range(prod(self.sizes.values())):
            stages.setdefault(self.place(rank)[STAGES], []).append(rank)
        return {ranks[0]: tuple(ranks) for ranks in stages.values()}

    def role(self, rank: int) -> str:
        """Such as "stage 3"."""
        return f"stage {self.place(rank)[STAGES]}" if self.sizes[STAGES] > 1 else "all"


def _sizes(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for word in text.split(","):
        axis, equals, size = word.strip().partition("=")
        if not axis or not equals or not size.isdecimal() or int(size) < 1:
            raise InputError(_PLACE, f"must be axes with sizes such as tp=8,pp=64,dp=6, not {text}")
        if axis in sizes:
            raise InputError(_PLACE, f"names {axis} twice")
        sizes[axis] = int(size)
    return sizes
