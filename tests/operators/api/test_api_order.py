"""Nodes and devices in the order in which people look for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from operators.api.model.natural_order import natural, place_order
from operators.api.model.snapshot import JobRun, Node
from operators.api.model.statistics import Window, occupancy


def test_numbers_in_names_count_as_numbers() -> None:
    assert sorted(["w10", "w2", "w", "w2-1", "a9"], key=natural) == ["a9", "w", "w2", "w2-1", "w10"]


@given(
    st.lists(st.text(alphabet="w0129-.", max_size=6), unique=True).flatmap(
        lambda n: st.tuples(st.just(n), st.permutations(n))
    )
)
def test_it_does_not_matter_in_which_order_they_come(both: tuple[list[str], list[str]]) -> None:
    assert sorted(both[0], key=natural) == sorted(both[1], key=natural)


def test_gpus_come_before_cpus() -> None:
    places = ["b/cpu", "w10/0", "w2/10", "w2/2", "w2/?", "a/cpu"]
    assert sorted(places, key=place_order) == ["w2/2", "w2/10", "w2/?", "w10/0", "a/cpu", "b/cpu"]


def test_nodes_are_reported_in_that_order(place: Any) -> None:
    place.source.now = replace(place.source.now, nodes=(Node("w10"), Node("w9"), Node("w1")))
    assert [node["name"] for node in place.get("/nodes")["items"]] == ["w1", "w9", "w10"]


def test_spans_are_reported_in_that_order(make_job: Any) -> None:
    devices = ("w10/0", "a/cpu", "w9/0")
    runs = {"u1": tuple(JobRun(device.partition("/")[0], (device,), 1.0) for device in devices)}
    spans = occupancy([make_job(1)], runs, Window(0.0, 9.0, 9.0))
    assert [span.device for span in spans] == ["w9/0", "w10/0", "a/cpu"]
