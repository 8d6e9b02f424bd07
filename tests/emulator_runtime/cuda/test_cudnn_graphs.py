"""cuDNN with graphs of operations: descriptors, engines, plans, and the work that a graph means."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FP64, FP32, TF32, FP16, BF16 = range(5)
"""Precisions, as the trace numbers them."""

START = """
from math_calls import *
dnn = Library("libcudnn.so.9")
handle = dnn.created("cudnnCreate")
graphs = Backend(dnn)
INT, D = 3, Backend.DESCRIPTOR
def convolution(kind, first, x, w, y, stride=1, padding=1, spatial=2):
    same = lambda value: (INT, [value] * spatial)
    paddings = {104: same(padding), 105: same(padding)}
    counts = {102: same(1), 103: same(stride), 106: (INT, [spatial])}
    described = graphs.make(1, {100: (1, [0]), 101: (7, [1]), **counts, **paddings})
    return graphs.make(kind, {first + i: (D, [part]) for i, part in enumerate((described, x, w, y))})
def forward(x, w, y, **sizes):
    return convolution(10, 702, w, x, y, **sizes)
def matmul(a, b, c):
    return graphs.make(19, {1520: (D, [a]), 1521: (D, [b]), 1522: (D, [c]), 1523: (D, [graphs.make(18, {1500: (1, [0])})])})
def pointwise(mode, x, b, y):
    described = graphs.make(0, {0: (14, [mode]), 1: (1, [0])})
    return graphs.make(13, {750 + i: (D, [part]) for i, part in enumerate((described, x, b, y))})
def execute(graph, *identifiers, engine=0):
    plan = graphs.plan(graphs.configurations(graph)[engine])
    size = c_int64(7)
    graphs.get(plan, 402, INT, 1, byref(size))
    assert size.value == 0
    return dnn.status("cudnnBackendExecute", handle, plan, graphs.pack(*identifiers))
def status(function, *arguments):
    return dnn.status("cudnnBackend" + function, *arguments)
def attention(*, type=2, causal=False, heads=4):
    sizes = ((128, 64), (64, 128), (128, 64), (128, 64))
    q, k, v, o = (graphs.tensor(i + 1, (2, heads, *size), type) for i, size in enumerate(sizes))
    s = [graphs.tensor(10 + i, (2, heads, 128, 128), 0, virtual=True) for i in range(3)]
    mask = pointwise(303 if causal else 0, s[0], s[0], s[1])
    return graphs.graph(matmul(q, k, s[0]), mask, pointwise(13, s[1], s[1], s[2]), matmul(s[2], v, o))
"""

Run = Callable[..., str]
Work = dict[str, Any]
RunGraphs = Callable[..., list[Work]]


@pytest.fixture
def run_graphs(run_core: Run, tmp_path: Path) -> RunGraphs:
    """`run_graphs(code, **device)`: the work of the trace in its order."""

    def run(code: str, **device: object) -> list[Work]:
        trace = tmp_path / "trace.json"
        run_core(
            START + textwrap.dedent(code) + "\ncore.library.emu_device_synchronize(0)\n", device=device, trace=trace
        )
        events = [event for event in json.loads(trace.read_text() if trace.exists() else "[]") if event]
        return [{"name": event["name"], **event["args"]} for event in events]

    return run


def test_a_convolution(run_graphs: RunGraphs) -> None:
    (work,) = run_graphs("""
    x, w, y = graphs.tensor(1, (2, 8, 16, 16)), graphs.tensor(2, (4, 4, 3, 3)), graphs.tensor(3, (2, 4, 8, 8))
    assert execute(graphs.graph(forward(x, w, y, stride=2)), 1, 2, 3) == 0
    """)
    assert (work["name"], work["precision"]) == ("convolution_forward", TF32)
    assert work["flops"] == 2 * (2 * 8 * 8) * 4 * 4 * 9, "two groups"
    assert work["bytes"] == 4 * (2 * 8 * 256 + 4 * 4 * 9 + 2 * 4 * 64)


def test_its_backward_directions(run_graphs: RunGraphs) -> None:
    works = run_graphs("""
    x, w, y = graphs.tensor(1, (2, 8, 16, 16), 2), graphs.tensor(2, (4, 8, 3, 3), 2), graphs.tensor(3, (2, 4, 16, 16), 2)
    assert execute(graphs.graph(convolution(12, 708, w, x, y)), 1, 2, 3) == 0
    assert execute(graphs.graph(convolution(11, 714, w, x, y)), 1, 2, 3) == 0
    """)
    assert [work["name"] for work in works] == ["convolution_backward_data", "convolution_backward_filter"]
    assert {work["flops"] for work in works} == {2 * (2 * 16 * 16) * 4 * 8 * 9}
    assert {work["precision"] for work in works} == {FP16}


def test_engines_with_and_without_tensor_cores(run_graphs: RunGraphs) -> None:
    """A program that forbids TF32 looks for an engine without the note "tensor core"."""
    works = run_graphs("""
    x, w = graphs.tensor(1, (2, 8, 16, 16)), graphs.tensor(2, (8, 8, 3, 3))
    graph = graphs.graph(forward(x, w, graphs.tensor(3, (2, 8, 16, 16))))
    with_, without = graphs.configurations(graph)
    assert (graphs.notes(with_), graphs.notes(without)) == ([0], [])
    (fallback,) = graphs.configurations(graph, mode=2)
    assert graphs.notes(fallback) == []
    assert execute(graph, 1, 2, 3, engine=0) == 0
    assert execute(graph, 1, 2, 3, engine=1) == 0
    """)
    assert [work["precision"] for work in works] == [TF32, FP32]


def test_fewer_results_than_there_are(run_graphs: RunGraphs) -> None:
    run_graphs("""
    x, w = graphs.tensor(1, (2, 8, 16, 16)), graphs.tensor(2, (8, 8, 3, 3))
    graph = graphs.graph(forward(x, w, graphs.tensor(3, (2, 8, 16, 16))))
    heuristics = graphs.make(4, {200: (8, [0]), 201: (D, [graph])})
    assert graphs.get(heuristics, 202, D, 1, graphs.values(D, [graphs.fill(3, {})])) == 1
    assert graphs.get(heuristics, 202, D, 8, graphs.values(D, [graphs.fill(3, {}) for _ in range(8)])) == 2
    count = c_int64(0)
    graphs.get(graph, 802, INT, 1, byref(count))
    assert count.value == 2
    """)


def test_old_devices_have_one_engine(run_graphs: RunGraphs) -> None:
    (work,) = run_graphs(
        """
    x, w = graphs.tensor(1, (2, 8, 16, 16)), graphs.tensor(2, (8, 8, 3, 3))
    graph = graphs.graph(forward(x, w, graphs.tensor(3, (2, 8, 16, 16))))
    assert len(graphs.configurations(graph)) == 1
    assert execute(graph, 1, 2, 3) == 0
    """,
        capability_major=7,
    )
    assert work["precision"] == FP32


def test_a_product_with_a_fused_addition(run_graphs: RunGraphs) -> None:
    """What stays inside the graph isn't moved."""
    (work,) = run_graphs("""
    a, b, c = graphs.tensor(1, (3, 8, 16), 9), graphs.tensor(2, (3, 16, 4), 9), graphs.tensor(3, (3, 8, 4), 0, virtual=True)
    bias, y = graphs.tensor(4, (1, 1, 4), 9), graphs.tensor(5, (3, 8, 4), 9)
    assert execute(graphs.graph(matmul(a, b, c), pointwise(0, c, bias, y)), 1, 2, 4, 5) == 0
    """)
    assert (work["name"], work["precision"]) == ("matmul", BF16)
    assert work["flops"] == 2 * 3 * 8 * 4 * 16
    assert work["bytes"] == 2 * (3 * 8 * 16 + 3 * 16 * 4 + 4 + 3 * 8 * 4)


def test_pointwise_graphs_go_by_bytes(run_graphs: RunGraphs) -> None:
    (work,) = run_graphs("""
    x, y = graphs.tensor(1, (8, 16)), graphs.tensor(2, (8, 16))
    assert execute(graphs.graph(pointwise(0, x, x, y)), 1, 2) == 0
    """)
    assert (work["name"], work["flops"], work["bytes"]) == ("fused_pointwise", 0, 2 * 4 * 128)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_spelled_out(run_graphs: RunGraphs, causal: bool) -> None:
    (work,) = run_graphs(f"assert execute(attention(causal={causal}), 1, 2, 3, 4) == 0")
    assert (work["name"], work["precision"]) == ("attention_forward", FP16)
    assert work["flops"] == 2 * 2 * (2 * 4 * 128 * 128 * 64) / (2 if causal else 1)
    assert work["bytes"] == 4 * 2 * (2 * 4 * 128 * 64)


def test_attention_as_one_operation(run_graphs: RunGraphs) -> None:
    works = run_graphs("""
    q, k, v, o = (graphs.tensor(i, (2, 4, 128, 64), 2) for i in range(1, 5))
    run = lambda kind, parts: execute(graphs.graph(graphs.make(kind, {n: (D, [t]) for n, t in parts.items()})), 1, 2, 3, 4)
    assert run(41, {2800: q, 2801: k, 2802: v, 2803: o}) == 0
    assert run(43, {2851: q, 2852: k, 2853: v, 2854: o, 2862: o}) == 0
    """)
    product = 2 * (2 * 4 * 128 * 128 * 64)
    assert [(work["name"], work["flops"]) for work in works] == [
        ("attention_forward", 2 * product),
        ("attention_backward", 5 * product),
    ]


@pytest.mark.parametrize(("capability", "type_"), [(7, 2), (8, 0)])
def test_attention_that_no_engine_runs(run_graphs: RunGraphs, capability: int, type_: int) -> None:
    code = f"""
    graph = attention(type={type_})
    heuristics, count = graphs.make(4, {{200: (8, [0]), 201: (D, [graph])}}), c_int64()
    assert status("GetAttribute", heuristics, 202, D, c_int64(0), byref(count), None) == 3000
    engine = graphs.fill(2, {{1300: (D, [graph]), 1301: (INT, [0])}})
    assert status("Finalize", engine) == 3000
    """
    assert run_graphs(code, capability_major=capability) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("graphs.tensor(1, (2, 0))", 2000),
        ("graphs.tensor(1, (2, 2), 99)", 2000),
        ("graphs.tensor(1, (1,) * 9)", 3000),
        ("graphs.make(17, {901: (1, [0]), 902: (INT, [2, 2]), 903: (INT, [1]), 906: (INT, [1])})", 2008),
        ("graphs.make(17, {901: (1, [0])})", 2000),
        ("graphs.make(17, {700: (D, [x])})", 2000),
        ("graphs.make(17, {901: (99, [0])})", 2010),
        ("graphs.make(51, {})", 3000),
        ("graphs.make(15, {})", 2000),
        ("graphs.graph(c_void_p(0x1234))", 2000),
        ("graphs.graph(graphs.fill(17, {}))", 2004),
        ("matmul(x, x, x)", 2008),
        ("forward(x, graphs.tensor(2, (4, 8, 3, 3)), graphs.tensor(3, (2, 4, 9, 9)))", 2008),
        ("forward(x, graphs.tensor(2, (4, 3, 3, 3)), graphs.tensor(3, (2, 4, 4, 6)))", 2008),
        ("graphs.make(2, {1300: (D, [graphs.graph(pointwise(0, x, x, x))]), 1301: (INT, [5])})", 3000),
        ("graphs.make(5, {401: (D, [x])})", 2012),
        ("graphs.make(16, {1000: (INT, [1, 2]), 1001: (6, [1])})", 2008),
        ("graphs.set(x, 901, 1, [0])", 2000),
        ("graphs.get(graphs.fill(17, {}), 901, 1, 1)", 2004),
        ("graphs.get(x, 901, INT, 1)", 2010),
        ("graphs.get(x, 1300, INT, 1)", 2000),
        ("graphs.get(c_void_p(0x1234), 901, 1, 1)", 2000),
        ("graphs.destroy(c_void_p(0x1234))", 2000),
    ],
)
def test_rules(run_graphs: RunGraphs, code: str, expected: int) -> None:
    run_graphs(f"""
    x = graphs.tensor(1, (2, 8, 4, 6))
    try:
        {code}
    except CallError as error:
        assert error.status == {expected}, error
    else:
        raise AssertionError("it was accepted")
    """)


def test_what_execution_needs(run_graphs: RunGraphs) -> None:
    works = run_graphs("""
    x, y = graphs.tensor(1, (8, 16)), graphs.tensor(2, (8, 16))
    graph = graphs.graph(pointwise(0, x, x, y))
    assert execute(graph, 1) == 2000, "a pointer is missing"
    plan, pack = graphs.plan(graphs.configurations(graph)[0]), graphs.pack(1, 2)
    assert status("Execute", None, plan, pack) == 2000
    assert status("Execute", handle, pack, plan) == 2012
    assert status("Execute", handle, plan, graphs.fill(16, {})) == 2004
    """)
    assert works == []


def test_attributes_come_back(run_graphs: RunGraphs) -> None:
    run_graphs("""
    x = graphs.tensor(7, (2, 3, 4), 9)
    sizes, type = longs(0, 0, 0, 0), c_int(-1)
    assert graphs.get(x, 902, INT, 2, sizes) == 3, "the number of all elements"
    assert list(sizes) == [2, 3, 0, 0]
    assert graphs.get(x, 901, 1, 1, byref(type)) == 1 and type.value == 9
    assert graphs.get(x, 904, INT, 1, sizes) == 0, "was never set"
    plan = graphs.plan(graphs.configurations(graphs.graph(pointwise(0, x, x, x)))[0])
    assert status("GetAttribute", plan, 405, 24, c_int64(0), byref(c_int64()), None) == 3000
    """)


def test_descriptors_outlive_their_handles_while_others_hold_them(run_graphs: RunGraphs) -> None:
    run_graphs("""
    x, w, y = graphs.tensor(1, (2, 8, 16, 16)), graphs.tensor(2, (8, 8, 3, 3)), graphs.tensor(3, (2, 8, 16, 16))
    operation = forward(x, w, y)
    graphs.destroy(x, w, y)
    graph = graphs.graph(operation)
    graphs.destroy(operation)
    assert status("DestroyDescriptor", x) == 2000
    assert execute(graph, 1, 2, 3) == 0
    """)


def test_nothing_is_left_behind(run_graphs: RunGraphs) -> None:
    run_graphs("""
    import resource
    def once():
        x, y = graphs.tensor(1, (2, 8)), graphs.tensor(2, (2, 8))
        described = graphs.make(0, {0: (14, [0]), 1: (1, [0])})
        operation = graphs.make(13, {750: (D, [described]), 751: (D, [x]), 752: (D, [x]), 753: (D, [y])})
        graph = graphs.graph(operation)
        configurations = graphs.configurations(graph)
        plan, pack = graphs.plan(configurations[0]), graphs.pack(1, 2)
        dnn.call("cudnnBackendExecute", handle, plan, pack)
        graphs.destroy(x, y, described, operation, graph, *configurations, plan, pack)
    peaks = []
    for _ in range(2):
        for _ in range(1000):
            once()
        core.library.emu_device_synchronize(0)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert peaks[1] - peaks[0] < 512, peaks
    """)
