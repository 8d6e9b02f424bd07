"""Typed values out of messages: what is right passes unchanged, everything else is an error that names the field."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.ipc.fields import MAX_NS, mapping, mappings, text, texts, whole

anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text() | st.integers()), st.just({})
)


@given(st.text(max_size=50))
def test_text_passes(value):
    assert text({"a": value}, "a") == value
    assert text({"a": "\N{FIRE}" * 4096}, "a") == "\N{FIRE}" * 4096


@pytest.mark.parametrize("value", [None, 3, True, ["x"], {}, "x" * 4097, "half a pair \ud800", "\udcff"])
def test_not_a_text(value):
    with pytest.raises(ProtocolError, match="field 'job' must be a text of at most 4096 characters"):
        text({"job": value}, "job")


@given(st.integers(0, MAX_NS))
def test_whole_passes(value):
    assert whole({"a": value}, "a") == value


@pytest.mark.parametrize("value", [None, True, 1.0, math.nan, math.inf, "1", [], -1, MAX_NS + 1, 10**400])
def test_not_a_whole_number(value):
    with pytest.raises(ProtocolError, match=f"field 'step' must be a whole number from 0 to {MAX_NS}"):
        whole({"step": value}, "step")


def test_bounds_are_inclusive():
    assert [whole({"a": n}, "a", least=2, most=3) for n in (2, 3)] == [2, 3]
    for n in (1, 4):
        with pytest.raises(ProtocolError, match="from 2 to 3"):
            whole({"a": n}, "a", least=2, most=3)


def test_defaults_are_for_missing_fields_only():
    assert text({}, "a", "x") == "x"
    assert whole({}, "a", 7) == 7
    for missing in (lambda: text({}, "a"), lambda: whole({}, "a"), lambda: texts({}, "a"), lambda: mapping({}, "a")):
        with pytest.raises(ProtocolError, match="field 'a' must be"):
            missing()
    with pytest.raises(ProtocolError):
        text({"a": None}, "a", "x")


@pytest.mark.parametrize("value", [None, "ab", {"a": "b"}, ["a", 1], ["a"] * 1025, ["x" * 4097], ["\ud800"]])
def test_not_a_list_of_texts(value):
    with pytest.raises(ProtocolError, match="field 'devices' must be a list of at most 1024 texts"):
        texts({"devices": value}, "devices")


def test_lists_and_mappings_pass():
    assert texts({"a": []}, "a") == []
    assert texts({"a": ["x"] * 1024}, "a") == ["x"] * 1024
    assert mapping({"a": {"b": 1}}, "a") == {"b": 1}
    with pytest.raises(ProtocolError, match="field 'a' must be an object"):
        mapping({"a": []}, "a")


@pytest.mark.parametrize("value", ["x", 3, {}, [3], [{}, "x"], [{}] * 1025])
def test_not_a_list_of_objects(value):
    with pytest.raises(ProtocolError, match="field 'devices' must be a list of at most 1024 objects"):
        mappings({"devices": value}, "devices")


def test_lists_of_objects_pass():
    assert mappings({"a": [{"b": 1}, {}]}, "a") == [{"b": 1}, {}]
    assert mappings({}, "a") == []


@given(anything)
def test_nothing_but_a_protocol_error_comes_out(value):
    for read in (text, whole, texts, mapping, mappings):
        try:
            read({"a": value}, "a")
        except ProtocolError as error:
            assert "'a'" in str(error)
