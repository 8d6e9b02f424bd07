"""Policies' memories as plain data: what was remembered is there again, and nothing but plain data is made of a text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.scheduling.remember.encoding import EncodingError, decode, encode
from scheduler_sims.policies.allox.policy import _Service
from scheduler_sims.policies.las import _Memory
from scheduler_sims.policies.synergy.policy import Round
from scheduler_sims.policies.waiting import Lines

numbers = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none() | st.text()
keys = st.text() | st.integers() | st.tuples(st.text(), st.integers())
plain = st.recursive(
    numbers,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.lists(inner).map(tuple) | st.frozensets(keys),
    max_leaves=12,
)


@dataclass(frozen=True)
class Own:
    """As a user's policy may have it."""

    rounds: dict[str, int]
    best: float = inf


@dataclass(frozen=True)
class Cache:
    """Not kept."""

    KEPT: ClassVar[bool] = False
    table: object = None


def through_text(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))), __name__)


@given(plain)
def test_what_was_encoded_comes_back(value: Any) -> None:
    assert through_text(value) == value


def test_dataclasses_come_back_and_caches_do_not() -> None:
    assert through_text(Own({"a": 1})) == Own({"a": 1})
    assert through_text((Own({}, 2.5), Cache(object()))) == (Own({}, 2.5), None)


def test_what_bundled_policies_remember(world: Any, lab: Any) -> None:
    assert Lines.KEPT is False
    for policy, kind in (("synergy:round_s=5", Round), ("allox:alpha=0.5", _Service), ("las", _Memory)):
        here = world.of(gpus=1)
        for number in range(4):
            here.submit(f"j{number}", 6)
        program = lab(here, policy, until_s=14)
        program.run(lambda: False)
        state = program.loop.state
        assert isinstance(state, kind)
        again = decode(json.loads(json.dumps(encode(state))), "")
        if isinstance(state, _Memory):
            assert (again.lines, again.cpu_s) == (None, state.cpu_s)
        else:
            assert again == state


@pytest.mark.parametrize("value", [object(), lambda: 1, {1: object()}, b"bytes", Own])
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(EncodingError, match="is not plain data"):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "os:system", "fields": {}}',
        '{"type": "scheduler_sims.policies.las:Las", "fields": {}}',
        '{"type": "scheduler_sims.nowhere:Las", "fields": {}}',
        f'{{"type": "{__name__}:Own", "fields": {{"other": 1}}}}',
        f'{{"type": "{__name__}:Own", "fields": 5}}',
        f'{{"type": "{__name__}:Own"}}',
        '{"type": 5}',
        '{"tuple": 5}',
        '{"map": [[1]]}',
        '{"map": [[[1], 2]]}',
        '{"number": "many"}',
        '{"other": 1}',
        "{}",
    ],
)
def test_a_text_makes_nothing_but_plain_data(text: str) -> None:
    with pytest.raises(EncodingError):
        decode(json.loads(text), __name__)
