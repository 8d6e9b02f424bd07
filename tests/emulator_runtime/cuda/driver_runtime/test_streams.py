"""Streams, events, capture and graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_streams_have_priorities_flags_and_devices(run_cuda: Run) -> None:
    run_cuda(
        """
        least, greatest = c_int(), c_int()
        expect(cuda.cudaDeviceGetStreamPriorityRange(byref(least), byref(greatest)), OK)
        assert greatest.value < least.value == 0
        expect(cuda.cudaSetDevice(1), OK)
        stream = made(cuda.cudaStreamCreateWithPriority, 1, -100)
        priority, flags, device = c_int(), c_uint(), c_int()
        expect(cuda.cudaStreamGetPriority(stream, byref(priority)), OK)
        expect(cuda.cudaStreamGetFlags(stream, byref(flags)), OK)
        expect(cuda.cudaStreamGetDevice(stream, byref(device)), OK)
        assert (priority.value, flags.value, device.value) == (greatest.value, 1, 1)
        expect(cuda.cudaStreamCreateWithFlags(byref(out()), 2), INVALID_VALUE)
        expect(cuda.cudaStreamCreate(0), INVALID_VALUE)
        expect(cuda.cudaStreamQuery(4711), INVALID_HANDLE)
        expect(cuda.cudaStreamDestroy(0), INVALID_HANDLE)
        expect(cuda.cudaStreamDestroy(stream), OK)
        expect(cuda.cudaStreamDestroy(stream), INVALID_HANDLE)
        expect(cuda.cudaStreamSynchronize(stream), INVALID_HANDLE)
        """,
        devices=2,
    )


def test_events_measure_the_time_of_kernels(run_cuda: Run) -> None:
    """Each kernel takes 1 ms."""
    run_cuda(
        """
        kernel, = register("busy")
        stream, start, end = made(cuda.cudaStreamCreate), made(cuda.cudaEventCreate), made(cuda.cudaEventCreate)
        milliseconds = c_float()
        expect(cuda.cudaEventElapsedTime(byref(milliseconds), start, end), INVALID_HANDLE)
        expect(cuda.cudaEventRecord(start, stream), OK)
        for _ in range(20):
            expect(launch(kernel, stream=stream), OK)
        expect(cuda.cudaEventRecord(end, stream), OK)
        expect(cuda.cudaEventQuery(end), NOT_READY)
        expect(cuda.cudaGetLastError(), NOT_READY)
        expect(cuda.cudaStreamQuery(stream), NOT_READY)
        expect(cuda.cudaEventElapsedTime(byref(milliseconds), start, end), NOT_READY)
        expect(cuda.cudaEventSynchronize(end), OK)
        expect(cuda.cudaEventQuery(end), OK)
        expect(cuda.cudaEventElapsedTime(byref(milliseconds), start, end), OK)
        assert 20 <= milliseconds.value < 30, milliseconds.value
        expect(cuda.cudaEventDestroy(start), OK)
        expect(cuda.cudaEventDestroy(start), INVALID_HANDLE)
        expect(cuda.cudaEventElapsedTime(0, start, end), INVALID_VALUE)
        """
    )


def test_events_without_timing_and_for_other_processes(run_cuda: Run) -> None:
    run_cuda(
        """
        untimed = made(cuda.cudaEventCreateWithFlags, 2)
        expect(cuda.cudaEventRecord(untimed, 0), OK)
        expect(cuda.cudaEventElapsedTime(byref(c_float()), untimed, untimed), INVALID_HANDLE)
        expect(cuda.cudaEventCreateWithFlags(byref(out()), 8), INVALID_VALUE)
        expect(cuda.cudaEventCreateWithFlags(byref(out()), 4), INVALID_VALUE)
        expect(cuda.cudaEventCreateWithFlags(byref(out()), 6), NOT_SUPPORTED)
        expect(cuda.cudaStreamWaitEvent(0, 4711, 0), INVALID_HANDLE)
        """
    )


def test_host_functions_and_callbacks_run_in_order(run_cuda: Run) -> None:
    run_cuda(
        """
        calls = []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: calls.append(data))
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_int, ctypes.c_void_p)(lambda s, r, data: calls.append((s, r, data)))
        stream = made(cuda.cudaStreamCreate)
        expect(cuda.cudaLaunchHostFunc(stream, function, 7), OK)
        expect(cuda.cudaStreamAddCallback(stream, callback, 8, 0), OK)
        expect(cuda.cudaStreamSynchronize(stream), OK)
        assert calls == [7, (stream, 0, 8)], calls
        expect(cuda.cudaStreamAddCallback(stream, callback, 8, 1), INVALID_VALUE)
        expect(cuda.cudaStreamAddCallback(stream, 0, 8, 0), INVALID_VALUE)
        expect(cuda.cudaLaunchHostFunc(stream, 0, 7), INVALID_VALUE)
        """
    )


CAPTURE = """
    kernel, = register("captured")
    stream, graph = made(cuda.cudaStreamCreateWithFlags, 1), out()
    expect(cuda.cudaStreamBeginCapture(stream, MODE), OK)
"""


def test_a_graph_runs_what_was_captured(run_cuda: Run) -> None:
    """Three kernels of 1 ms."""
    run_cuda(
        "    MODE = 1"
        + CAPTURE
        + """
    state = c_int()
    expect(cuda.cudaStreamIsCapturing(stream, byref(state)), OK)
    assert state.value == 1
    for _ in range(3):
        expect(launch(kernel, stream=stream), OK)
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK)
    expect(cuda.cudaStreamIsCapturing(stream, byref(state)), OK)
    assert state.value == 0
    count = c_size_t()
    expect(cuda.cudaGraphGetNodes(graph, 0, byref(count)), OK)
    assert count.value == 3
    nodes, before, kind = (ctypes.c_void_p * 4)(), (ctypes.c_void_p * 2)(), c_int(9)
    count.value = 4
    expect(cuda.cudaGraphGetNodes(graph, nodes, byref(count)), OK)
    assert count.value == 3 and nodes[3] is None
    expect(cuda.cudaGraphNodeGetType(nodes[2], byref(kind)), OK)
    assert kind.value == 0
    count.value = 2
    expect(cuda.cudaGraphNodeGetDependencies(nodes[2], before, 0, byref(count)), OK)
    assert (count.value, before[0], before[1]) == (1, nodes[1], None)
    expect(cuda.cudaGraphNodeGetDependencies(nodes[0], 0, 0, byref(count)), OK)
    assert count.value == 0
    expect(cuda.cudaGraphNodeGetDependencies(4711, 0, 0, byref(count)), INVALID_VALUE)
    executable = made(cuda.cudaGraphInstantiate, graph, 0)
    expect(cuda.cudaGraphLaunch(graph, stream), INVALID_VALUE)
    start, end, milliseconds = made(cuda.cudaEventCreate), made(cuda.cudaEventCreate), c_float()
    expect(cuda.cudaEventRecord(start, stream), OK)
    expect(cuda.cudaGraphLaunch(executable, stream), OK)
    expect(cuda.cudaGraphLaunch(executable, stream), OK)
    expect(cuda.cudaEventRecord(end, stream), OK)
    expect(cuda.cudaEventSynchronize(end), OK)
    expect(cuda.cudaEventElapsedTime(byref(milliseconds), start, end), OK)
    assert 6 <= milliseconds.value < 9, milliseconds.value
    expect(cuda.cudaGraphDestroy(executable), INVALID_VALUE)
    expect(cuda.cudaGraphDestroy(graph), OK)
    expect(cuda.cudaGraphDestroy(graph), INVALID_VALUE)
    expect(cuda.cudaGraphLaunch(executable, stream), OK)
    expect(cuda.cudaGraphExecDestroy(executable), OK)
    expect(cuda.cudaGraphExecDestroy(executable), INVALID_VALUE)
    expect(cuda.cudaGraphLaunch(executable, stream), INVALID_VALUE)
    """
    )


@pytest.mark.parametrize(
    ("mode", "thread_mode", "allowed"), [(0, 0, False), (0, 2, True), (1, 0, False), (2, 0, True), (2, 2, True)]
)
def test_calls_that_a_capture_forbids(run_cuda: Run, mode: int, thread_mode: int, allowed: bool) -> None:
    """cudaThreadExchangeStreamCaptureMode: 0 global, 1 of the thread, 2 relaxed."""
    run_cuda(
        f"    MODE = {mode}"
        + CAPTURE
        + f"""
    before = c_int({thread_mode})
    expect(cuda.cudaThreadExchangeStreamCaptureMode(byref(before)), OK)
    assert before.value == 0
    expect(cuda.cudaMalloc(byref(out()), 512), OK if {allowed} else CAPTURE_UNSUPPORTED)
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK if {allowed} else CAPTURE_INVALIDATED)
    expect(cuda.cudaMalloc(byref(out()), 512), OK)
    expect(cuda.cudaThreadExchangeStreamCaptureMode(byref(c_int(3))), INVALID_VALUE)
    """
    )


@pytest.mark.parametrize(("mode", "allowed"), [(0, False), (1, True), (2, True)])
def test_a_capture_in_another_thread(run_cuda: Run, mode: int, allowed: bool) -> None:
    run_cuda(
        f"    MODE = {mode}"
        + CAPTURE
        + f"""
    import threading
    results = []
    thread = threading.Thread(target=lambda: results.append(cuda.cudaMalloc(byref(out()), 512)))
    thread.start(), thread.join()
    assert results == [OK if {allowed} else CAPTURE_UNSUPPORTED], results
    thread = threading.Thread(target=lambda: results.append(cuda.cudaStreamEndCapture(stream, byref(graph))))
    thread.start(), thread.join()
    assert results[1] == (OK if MODE == 2 else 908), results
    """
    )


def test_waiting_breaks_a_capture(run_cuda: Run) -> None:
    run_cuda(
        "    MODE = 2"
        + CAPTURE
        + """
    expect(cuda.cudaStreamSynchronize(stream), CAPTURE_UNSUPPORTED)
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), CAPTURE_INVALIDATED)
    assert graph.value is None
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), INVALID_VALUE)
    expect(cuda.cudaStreamBeginCapture(0, 0), CAPTURE_UNSUPPORTED)
    expect(cuda.cudaStreamBeginCapture(stream, 3), INVALID_VALUE)
    """
    )


def test_a_graph_belongs_to_one_capture_at_a_time(run_cuda: Run) -> None:
    run_cuda(
        """
        one, other, graph = made(cuda.cudaStreamCreate), made(cuda.cudaStreamCreate), made(cuda.cudaGraphCreate, 0)
        expect(cuda.cudaStreamBeginCaptureToGraph(one, graph, 0, 0, 0, 2), OK)
        expect(cuda.cudaStreamBeginCaptureToGraph(other, graph, 0, 0, 0, 2), INVALID_VALUE)
        expect(cuda.cudaGraphDestroy(graph), INVALID_VALUE)
        expect(cuda.cudaStreamEndCapture(one, byref(out())), OK)
        expect(cuda.cudaStreamBeginCaptureToGraph(other, graph, 0, 0, 0, 2), OK)
        """
    )


def test_a_graph_that_is_launched_in_a_capture_becomes_part_of_it(run_cuda: Run) -> None:
    """Two streams with one kernel of 1 ms each: launched twice by the outer graph, and that twice."""
    run_cuda(
        """
        kernel, = register("inner")
        stream, other = made(cuda.cudaStreamCreateWithFlags, 1), made(cuda.cudaStreamCreateWithFlags, 1)
        forked, joined, count = made(cuda.cudaEventCreateWithFlags, 2), made(cuda.cudaEventCreateWithFlags, 2), c_size_t()
        inner, outer = out(), out()
        expect(cuda.cudaStreamBeginCapture(stream, 1), OK)
        for event, of, waiting in ((forked, stream, other), (joined, other, stream)):
            expect(cuda.cudaEventRecord(event, of), OK)
            expect(cuda.cudaStreamWaitEvent(waiting, event, 0), OK)
            expect(launch(kernel, stream=waiting), OK)
        expect(cuda.cudaStreamEndCapture(stream, byref(inner)), OK)
        executable = made(cuda.cudaGraphInstantiate, inner, 0)
        expect(cuda.cudaStreamBeginCapture(stream, 1), OK)
        expect(cuda.cudaGraphLaunch(executable, stream), OK)
        expect(cuda.cudaGraphLaunch(executable, stream), OK)
        expect(cuda.cudaStreamEndCapture(stream, byref(outer)), OK)
        expect(cuda.cudaGraphGetNodes(outer, 0, byref(count)), OK)
        assert count.value == 4
        both, took = made(cuda.cudaGraphInstantiate, outer, 0), c_float()
        start, end = made(cuda.cudaEventCreate), made(cuda.cudaEventCreate)
        expect(cuda.cudaEventRecord(start, stream), OK)
        for _ in range(2):
            expect(cuda.cudaGraphLaunch(both, stream), OK)
        expect(cuda.cudaEventRecord(end, stream), OK)
        expect(cuda.cudaEventSynchronize(end), OK)
        expect(cuda.cudaEventElapsedTime(byref(took), start, end), OK)
        assert 8 <= took.value < 12, took.value
        """
    )


@pytest.mark.parametrize(("mode", "destroy"), [(0, "cudaStreamDestroy(stream)"), (2, "cudaDeviceReset()")])
def test_a_destroyed_stream_no_longer_captures(run_cuda: Run, mode: int, destroy: str) -> None:
    """While a stream is captured in a mode other than 2, relaxed, a device can't be reset."""
    run_cuda(
        f"    MODE = {mode}"
        + CAPTURE
        + f"""
    other, fork, state = made(cuda.cudaStreamCreateWithFlags, 1), made(cuda.cudaEventCreate), c_int(1)
    expect(cuda.cudaEventRecord(fork, stream), OK)
    expect(cuda.cudaStreamWaitEvent(other, fork, 0), OK)
    expect(cuda.{destroy}, OK)
    expect(cuda.cudaMalloc(byref(out()), 512), OK)
    if "{destroy}" != "cudaDeviceReset()":
        expect(cuda.cudaStreamIsCapturing(other, byref(state)), OK)
        assert state.value == 0
        expect(launch(kernel, stream=other), OK)
        expect(cuda.cudaStreamSynchronize(other), OK)
    """
    )


UNJOINED = 904
FORK = """
    a, b = made(cuda.cudaStreamCreateWithFlags, 1), made(cuda.cudaStreamCreateWithFlags, 1)
    def follow(stream, other):
        event = made(cuda.cudaEventCreateWithFlags, 2)
        expect(cuda.cudaEventRecord(event, other), OK)
        return lambda: expect(cuda.cudaStreamWaitEvent(stream, event, 0), OK)
    follow(a, stream)()
    follow(b, stream)()
    launch(kernel, stream=a)
    launch(kernel, stream=b)
"""


@pytest.mark.parametrize(
    ("joins", "status"),
    [
        ("follow(stream, a)(); follow(stream, b)()", 0),
        ("follow(a, b)(); follow(stream, a)()", 0),
        ("follow(stream, a)()", UNJOINED),
        ("follow(a, b)(); follow(b, a)()", UNJOINED),
        ("follow(stream, a)(); follow(a, b)()", UNJOINED),
        ("early = follow(stream, a); launch(kernel, stream=a); early(); follow(stream, b)()", UNJOINED),
    ],
)
def test_all_work_of_a_capture_comes_before_its_end(run_cuda: Run, joins: str, status: int) -> None:
    run_cuda(
        "    MODE = 1"
        + CAPTURE
        + FORK
        + f"""
    {joins}
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), {status})
    """
    )


def test_the_core_s_own_streams_after_a_reset_are_none_of_the_program_s(run_cuda: Run) -> None:
    """A thread's own default stream, and those on which parts of a graph run beside each other."""
    run_cuda(
        "    MODE = 1"
        + CAPTURE
        + FORK
        + """
    PER_THREAD = 2
    follow(stream, a)()
    follow(stream, b)()
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK)
    executable = made(cuda.cudaGraphInstantiate, graph, 0)
    for _ in range(2):
        expect(launch(kernel, stream=PER_THREAD), OK)
        expect(cuda.cudaGraphLaunch(executable, 0), OK)
        expect(cuda.cudaDeviceReset(), OK)
        own = [made(cuda.cudaStreamCreateWithFlags, 1) for _ in range(8)]
        expect(launch(kernel, stream=PER_THREAD), OK)
        expect(cuda.cudaGraphLaunch(executable, 0), OK)
        assert [cuda.cudaStreamQuery(each) for each in own] == [OK] * 8
    """
    )


@pytest.mark.parametrize("release", [12, 13])
def test_capture_info(run_cuda: Run, release: int) -> None:
    run_cuda(
        "    MODE = 1"
        + CAPTURE
        + """
    state, id, of = c_int(), c_uint64(), out()
    if RELEASE == 12:
        expect(cuda.cudaStreamGetCaptureInfo(stream, byref(state), byref(id)), OK)
        expect(cuda.cudaStreamGetCaptureInfo_v2(stream, byref(state), byref(id), byref(of), 0, 0), OK)
    else:
        expect(cuda.cudaStreamGetCaptureInfo(stream, byref(state), byref(id), byref(of), 0, 0, 0), OK)
    assert state.value == 1 and id.value > 0
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK)
    assert graph.value == of.value
    """,
        release=release,
    )


def test_what_captured_work_depends_on(run_cuda: Run) -> None:
    """A fork to another stream and the join of both."""
    run_cuda(
        "    MODE = 1"
        + CAPTURE
        + """
    other = made(cuda.cudaStreamCreateWithFlags, 1)
    forked, joined = made(cuda.cudaEventCreateWithFlags, 2), made(cuda.cudaEventCreateWithFlags, 2)
    def dependencies(of):
        state, nodes, count = c_int(), ctypes.POINTER(ctypes.c_void_p)(), c_size_t()
        expect(cuda.cudaStreamGetCaptureInfo(of, byref(state), 0, 0, byref(nodes), 0, byref(count)), OK)
        return [nodes[i] for i in range(count.value)]
    assert dependencies(stream) == [] and dependencies(other) == []
    launch(kernel, stream=stream)
    first, = dependencies(stream)
    expect(cuda.cudaEventRecord(forked, stream), OK)
    expect(cuda.cudaStreamWaitEvent(other, forked, 0), OK)
    assert dependencies(other) == [first]
    launch(kernel, stream=other)
    second, = dependencies(other)
    launch(kernel, stream=stream)
    third, = dependencies(stream)
    expect(cuda.cudaEventRecord(joined, other), OK)
    expect(cuda.cudaStreamWaitEvent(stream, joined, 0), OK)
    assert sorted(dependencies(stream)) == sorted([third, second]) and len({first, second, third}) == 3
    expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK)
    expect(cuda.cudaGraphDestroy(graph), OK)
    expect(cuda.cudaGraphNodeGetType(first, byref(c_int())), INVALID_VALUE)
    """
    )


def test_objects_live_as_long_as_the_graphs_that_hold_them(run_cuda: Run) -> None:
    run_cuda(
        """
        destroyed = []
        destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: destroyed.append(data))
        expect(cuda.cudaSetDevice(0), OK)
        object = made(cuda.cudaUserObjectCreate, 77, destroy, 1, 1)
        graph = made(cuda.cudaGraphCreate, 0)
        expect(cuda.cudaGraphRetainUserObject(graph, object, 1, 1), OK)  # the program's reference becomes the graph's
        executable = made(cuda.cudaGraphInstantiate, graph, 0)
        expect(cuda.cudaGraphDestroy(graph), OK)
        assert destroyed == []
        expect(cuda.cudaGraphExecDestroy(executable), OK)
        assert destroyed == [77]
        expect(cuda.cudaUserObjectRelease(object, 1), INVALID_VALUE)

        object, graph = made(cuda.cudaUserObjectCreate, 78, destroy, 2, 1), made(cuda.cudaGraphCreate, 0)
        expect(cuda.cudaGraphRetainUserObject(graph, object, 1, 0), OK)
        expect(cuda.cudaGraphReleaseUserObject(graph, object, 1), OK)
        expect(cuda.cudaUserObjectRelease(object, 3), INVALID_VALUE)
        expect(cuda.cudaUserObjectRelease(object, 2), OK)
        assert destroyed == [77, 78]
        expect(cuda.cudaUserObjectCreate(byref(out()), 1, destroy, 1, 0), INVALID_VALUE)
        expect(cuda.cudaUserObjectCreate(byref(out()), 1, 0, 1, 1), INVALID_VALUE)
        expect(cuda.cudaGraphRetainUserObject(4711, object, 1, 0), INVALID_VALUE)
        """
    )
