from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from scheduler_sims.often_made import often_made


@often_made
@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    size: int = 3
    parts: list[int] = field(default_factory=list)


def test_the_constructor_takes_what_a_dataclass_takes():
    assert Fact("a") == Fact(name="a", size=3, parts=[])
    assert replace(Fact("a", 4), name="b") == Fact("b", 4)
    assert Fact("a").parts is not Fact("a").parts
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Fact()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Fact("a", colour="red")  # type: ignore[call-arg]


def test_objects_stay_frozen():
    with pytest.raises(FrozenInstanceError):
        Fact("a").size = 5  # type: ignore[misc]
