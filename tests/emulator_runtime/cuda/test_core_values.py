"""What a program reads back of device memory: values of the host and of other processes, and what kernels make of them."""

import pytest

HEAD = """
from kernel_calls import *
kernels = Kernels(core)
integers, launch, read = kernels.integers, kernels.launch, kernels.read
result = core.allocate(512)
"""


@pytest.mark.parametrize(
    ("kernel", "size", "value"),
    [
        ("reduce_kernel<float, mean>", 4, b"\x00\x00\xc0\x3f"),
        ("reduce_kernel<and_kernel>", 1, b"\x01"),
        ("reduce_kernel<or_kernel>", 1, b"\x00"),
        ("cub::DeviceReduce::Sum<int>", 4, bytes(4)),
        ("cub::DeviceSelect", 8, bytes(8)),
    ],
)
def test_a_small_read_of_what_a_kernel_wrote_is_a_harmless_value(run_core, kernel, size, value):
    run_core(
        f"""
        memory, stream = core.allocate(512), core.default_stream()
        core.write(memory, b"\\xff" * 8)
        assert core.read(memory, {size}) == b"\\xff" * {size}  # what the host wrote, and no kernel since
        core.work(stream, kind=0, name=b"{kernel}")
        assert core.read(memory, {size}) == {value!r}
        """,
        scalar=1.5,
    )


def test_a_small_read_may_have_been_written_in_several_pieces(run_core):
    run_core(
        """
        memory = core.allocate(512)
        core.write(memory, b"ab")
        core.write(c_void_p(memory.value + 2), b"cd")
        assert core.read(memory, 4) == b"abcd"
        assert core.read(memory, 8) != b"abcd" + bytes(4)  # nobody wrote the rest
    """,
        scalar=1.5,
    )


def test_a_count_is_none_of_the_values_that_were_exchanged_in_its_place(run_core):
    """torch's nonzero() counts in memory that may have had the size of another process's object a few kernels ago."""
    run_core(
        f"""{HEAD}
place, other = integers(576), integers(64)
launch(COUNT, tensors(other, other), tensors(place), integer(2))
assert core.read(place, 4) == bytes(4)
assert read(other) == (64,)
"""
    )


def test_integers_are_added(run_core):
    run_core(
        f"""{HEAD}
values, others = integers(5, -7), integers(100, 200)
launch(ADD_NUMBER, integer(2), longs(30, 2), tensors(result, values))
assert read(result, 2) == (65, 53)
launch(ADD_TENSOR, integer(2), longs(-1), tensors(result, result, others), b"", b"")
assert read(result, 2) == (-35, -147)
"""
    )


@pytest.mark.parametrize(("operator", "wanted"), [(0, "110"), (1, "100"), (2, "011"), (3, "001")])
def test_integers_are_compared(run_core, operator, wanted):
    """The operators are >=, >, <= and <."""
    run_core(
        f"""{HEAD}
launch(COMPARE, integer(3), integer({operator}), tensors(result, integers(2, 3, -4), integers(1, 3, 4)))
assert core.read(result, 3) == bytes(int(one) for one in "{wanted}")
"""
    )


def test_tensors_are_concatenated(run_core):
    run_core(
        f"""{HEAD}
inputs = integers(1, 2), integers(3), integers(4, 5, 6)
launch(CONCATENATE, tensors(result), concatenation(*inputs, sizes=[2, 1, 3]), grid=(1, 3, 1))
assert read(result, 6) == (1, 2, 3, 4, 5, 6)
"""
    )


@pytest.mark.parametrize(
    "call",
    [
        "launch(ADD_NUMBER, integer(1), longs(30, 2), tensors(result, unknown))",
        "launch(ADD_TENSOR, integer(1), longs(1), tensors(result, known, unknown))",
        "launch(ADD_TENSOR, integer(1), longs(1), tensors(c_void_p(64), known, known))",
        "launch(ADD_TENSOR, integer(65), longs(1), tensors(result, known, known))",
        "launch(ADD_TENSOR, integer(-1), longs(1), tensors(result, known, known))",
        "launch(COMPARE, integer(1), integer(0), tensors(result, known, unknown))",
        "launch(COMPARE, integer(1), integer(0), tensors(c_void_p(64), known, known))",
        "launch(CONCATENATE, tensors(result), concatenation(known, unknown, sizes=[1, 1]), grid=(1, 2, 1))",
        "launch(CONCATENATE, tensors(result), concatenation(known, known, sizes=[1, 1 << 20]), grid=(1, 2, 1))",
        "launch(CONCATENATE, tensors(result), concatenation(known, sizes=[1]), grid=(1, 129, 1))",
        "launch(CONCATENATE[:40], tensors(result), concatenation(known, sizes=[1]))",
    ],
)
def test_what_is_not_known_or_too_large_is_left_alone(run_core, call):
    """The kernel may have written anything, so that what the host wrote isn't known afterwards."""
    run_core(
        f"""{HEAD}
known, unknown, written = integers(1), core.allocate(512), core.allocate(512)
core.write(written, longs(-1))
{call}
assert read(result) == (0,)
assert read(written) == (0,)
"""
    )


def test_a_sum_has_the_place_of_something_older(run_core):
    """Its result is read, not what another process had written there before."""
    run_core(
        f"""{HEAD}
place, sizes = integers(77), integers(40, 2)
core.work(core.default_stream(), kind=0, name=b"reduce_kernel ReduceOpIl sum_functorIl")
assert read(place) == (42,)
assert read(sizes, 2) == (40, 2)
"""
    )


LATE = """
place, host, gathered = integers(0), core.allocate(512, HOST), []
def arrive(ready_ns):
    if gathered:
        ctypes.memmove(place, longs(*gathered), 16)
        core.library.emu_memory_written(place, c_size_t(16))
        return core.library.emu_now_ns()
core.deferred(core.default_stream(), arrive)
second = c_void_p(place.value + 8)
def arrived(size):
    core.copy(core.default_stream(), host, result, size, blocking=False)
    gathered.extend([25, 5025])
    core.synchronize(core.default_stream())
    return ctypes.string_at(host, size)
"""


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("launch(ADD_NUMBER, integer(2), longs(30, 2), tensors(result, place))", (85, 5085)),
        ("launch(ADD_TENSOR, integer(1), longs(-1), tensors(result, place, second))", (-5000,)),
        (
            "launch(CONCATENATE, tensors(result), concatenation(second, place, sizes=[1, 1]), grid=(1, 2, 1))",
            (5025, 25),
        ),
    ],
)
def test_a_kernel_reads_what_arrives_after_its_launch(run_core, call, values):
    """As behind a collective that waits for another rank. Its parameters are those of the launch: the program forgets them."""
    run_core(
        f"""{HEAD}{LATE}
{call}
assert struct.unpack("{len(values)}q", arrived({8 * len(values)})) == {values}
"""
    )


def test_values_that_arrive_late_are_compared_and_added_in_order(run_core):
    run_core(
        f"""{HEAD}{LATE}
launch(ADD_NUMBER, integer(1), longs(5000, 1), tensors(place, place))
launch(COMPARE, integer(1), integer(0), tensors(result, place, second))
assert arrived(1) == b"\\1"
"""
    )


def test_a_kernel_of_a_graph_is_executed_at_each_launch_of_the_graph(run_core):
    run_core(
        f"""{HEAD}
count, stream, graph = integers(5), core.stream(), c_void_p()
core.call("emu_capture_begin", stream, None)
launch(ADD_NUMBER, integer(1), longs(1, 1), tensors(count, count), stream=stream)
core.call("emu_capture_end", stream, byref(graph))
assert read(count) == (5,)
for _ in range(3):
    core.call("emu_graph_launch", graph, stream)
core.call("emu_graph_destroy", graph)
core.synchronize(stream)
assert read(count) == (8,)
"""
    )
