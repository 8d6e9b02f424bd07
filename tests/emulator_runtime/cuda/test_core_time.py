"""Streams, events, engines and graphs of the core: what runs when. A kernel takes 1 ms of emulated time."""

import json

SLACK = 0.5
"""A busy machine may end a wait so much later (seconds)."""


def test_launches_return_at_once_and_run_one_after_the_other(run_core):
    run_core(f"""
        stream, watch = core.default_stream(), Stopwatch()
        core.launch(stream, 200)
        assert watch.s < 0.15
        assert core.status("emu_stream_query", stream) == NOT_READY
        core.synchronize(stream)
        assert 0.2 <= watch.s < 0.2 + {SLACK}
        assert core.status("emu_stream_query", stream) == 0
    """)


def test_streams_share_the_compute_units_and_copies_run_beside_them(run_core):
    run_core("""
        one, two, copies = core.stream(), core.stream(), core.stream()
        pinned, memory = core.allocate(1 << 24, HOST), core.allocate(1 << 24)
        begin, open_gate = core.gate(one, two, copies)
        core.launch(one, 10)
        core.launch(two, 10)
        core.copy(copies, memory, pinned, 1 << 24, blocking=False)  # 16 MiB at 10 GB/s: 1.7 ms
        end, copied = core.record(two), core.record(copies)
        open_gate()
        core.call("emu_device_synchronize", 0)
        assert core.elapsed_ms(begin, end) == 20
        assert 1.6 < core.elapsed_ms(begin, copied) < 1.7
    """)


def test_later_work_fills_the_gaps_that_earlier_work_leaves(run_core):
    run_core("""
        one, two = core.stream(), core.stream()
        memory, pinned = core.allocate(1 << 26), core.allocate(1 << 26, HOST)
        begin, open_gate = core.gate(one, two)
        core.copy(one, memory, pinned, 1 << 26, blocking=False)  # 64 MiB at 10 GB/s: 6.7 ms
        core.launch(one)
        core.launch(two, 10)
        ends = core.record(one), core.record(two)
        open_gate()
        core.call("emu_device_synchronize", 0)
        first, second = (core.elapsed_ms(begin, end) for end in ends)
        assert 7.7 < first < 7.8, first  # the kernel behind the copy was issued first
        assert second == 11  # ten kernels, and that one in their midst
    """)


def test_rows_that_are_set_are_one_kernel(run_core):
    run_core(
        """
        stream, target = core.stream(), core.allocate(1 << 20)
        begin, open_gate = core.gate(stream)
        core.call("emu_set_rows", stream, target, c_size_t(1024), 0, c_size_t(1), c_size_t(1000), c_size_t(1024))
        end = core.record(stream)
        open_gate()
        core.synchronize(stream)
        assert core.elapsed_ms(begin, end) == 1
        """,
    )


def test_a_stream_waits_for_an_event_of_another(run_core):
    run_core("""
        one, two = core.stream(), core.stream()
        core.launch(one, 50)
        event = core.record(one)
        core.wait(two, event)
        core.launch(one, 50)
        core.launch(two)
        end = core.record(two)
        core.synchronize(two)
        assert core.elapsed_ms(event, end) >= 1
        assert core.status("emu_event_query", event) == 0
        assert core.status("emu_event_elapsed", core.event(), event, None) == INVALID_HANDLE  # never recorded
    """)


def test_a_recorded_event_stays_what_it_was_for_those_who_wait(run_core):
    run_core("""
        one, two, event = core.stream(), core.stream(), core.event()
        begin, open_gate = core.gate(one, two)
        core.launch(one, 5)
        core.record(one, event)
        core.wait(two, event)
        core.launch(one, 300)
        core.record(one, event)
        end = core.record(two)
        open_gate()
        core.synchronize(two)
        assert core.elapsed_ms(begin, end) == 5
    """)


def test_the_default_stream_and_blocking_streams_wait_for_each_other(run_core):
    run_core("""
        blocking, free, default = core.stream(flags=0), core.stream(), core.default_stream()
        pinned, memory = core.allocate(1 << 26, HOST), core.allocate(1 << 26)
        begin, open_gate = core.gate(blocking, free)
        core.copy(blocking, memory, pinned, 1 << 26, blocking=False)  # 6.7 ms
        core.launch(default)
        core.launch(free)
        ends = core.record(default), core.record(free)
        open_gate()
        core.call("emu_device_synchronize", 0)
        waited, not_waited = (core.elapsed_ms(begin, end) for end in ends)
        assert 7.7 < waited < 7.8, waited
        assert not_waited == 1
    """)


def test_the_host_waits_when_1024_launches_are_queued(run_core):
    run_core("""
        stream, watch = core.stream(), Stopwatch()
        core.launch(stream, 1024)
        assert watch.s < 0.5
        core.launch(stream, 100)
        assert watch.s >= 0.095
    """)


def test_a_function_of_the_host_runs_in_its_place(run_core):
    run_core("""
        stream, ran = core.stream(), []
        begin = core.record(stream)
        core.launch(stream, 5)
        core.host_function(stream, lambda: (ran.append(core.now_s()), time.sleep(0.02)))
        core.launch(stream, 5)
        end = core.record(stream)
        core.synchronize(stream)
        assert len(ran) == 1
        assert 30 <= core.elapsed_ms(begin, end) < 300
    """)


def test_functions_of_the_host_run_in_the_order_of_their_times(run_core):
    run_core("""
        late, early, order = core.stream(), core.stream(), []
        core.launch(late, 500)
        core.host_function(late, lambda: order.append("late"))
        core.host_function(early, lambda: order.append("early"))
        core.synchronize(late), core.synchronize(early)
        assert order == ["early", "late"]
    """)


def test_work_whose_end_is_unknown_holds_back_only_its_own_stream(run_core):
    run_core("""
        one, two, asked = core.stream(), core.stream(), []
        known = []

        def poll(ready_ns):
            asked.append(ready_ns)
            return ready_ns + 5_000_000 if known else None

        begin = core.record(one)
        core.launch(one)
        core.deferred(one, poll)
        core.launch(one)
        assert asked, "asked at once"
        core.launch(two)
        core.synchronize(two)
        assert core.status("emu_stream_query", one) == NOT_READY
        known.append(True)
        end = core.record(one)
        core.synchronize(one)
        assert 7 <= core.elapsed_ms(begin, end) < 12, core.elapsed_ms(begin, end)
        assert len(set(asked)) == 1  # it was ready at the same moment each time
    """)


def test_data_that_arrives_late_is_what_a_later_copy_reads(run_core):
    run_core("""
        stream, memory, pinned = core.stream(), core.allocate(4096), core.allocate(4096, HOST)
        core.write(memory, b"old data")
        known = []

        def poll(ready_ns):
            if not known:
                return None
            ctypes.memmove(memory, b"new data", 8)
            core.library.emu_memory_written(memory, c_size_t(8))
            return ready_ns

        core.deferred(stream, poll)
        core.copy(stream, pinned, memory, 4096, blocking=False)
        known.append(True)
        core.synchronize(stream)
        assert ctypes.string_at(pinned, 8) == b"new data"
    """)


def test_a_graph_of_two_streams_takes_as_long_as_its_work(run_core):
    run_core("""
        one, two = core.stream(), core.stream()
        core.call("emu_capture_begin", one, None)
        fork = core.record(one)
        core.wait(two, fork)
        core.launch(one, 3)
        core.launch(two, 2)
        core.wait(one, core.record(two))
        assert core.status("emu_stream_synchronize", two) == 900
        graph = c_void_p()
        assert core.status("emu_capture_end", one, byref(graph)) == 901  # the wait has spoilt it

        core.call("emu_capture_begin", one, None)
        core.record(one, fork)
        core.wait(two, fork)
        core.launch(one, 3)
        core.launch(two, 2)
        assert core.status("emu_capture_end", two, byref(graph)) == 903
        assert core.status("emu_capture_end", one, byref(graph)) == 904  # nothing waits for the second stream

        core.call("emu_capture_begin", one, None)
        core.record(one, fork)
        core.wait(two, fork)
        core.launch(one, 3)
        core.launch(two, 2)
        core.wait(one, core.record(two))
        core.call("emu_capture_end", one, byref(graph))
        assert core.library.emu_graph_nodes(graph) == 5
        begin = core.record(one)
        for _ in range(2):
            core.call("emu_graph_launch", graph, one)
        end = core.record(one)
        core.synchronize(one)
        assert 10 <= core.elapsed_ms(begin, end) < 13, core.elapsed_ms(begin, end)
        core.call("emu_graph_destroy", graph)
        assert core.status("emu_graph_launch", graph, one) == INVALID_HANDLE
    """)


def test_destroyed_objects_are_refused(run_core):
    run_core("""
        stream, event = core.stream(), core.event()
        core.launch(stream, 3)
        core.call("emu_stream_destroy", stream)  # its work goes on
        core.call("emu_event_destroy", event)
        for function, *arguments in (
            ("emu_stream_destroy", stream), ("emu_stream_synchronize", stream), ("emu_stream_query", stream),
            ("emu_event_record", event, core.default_stream()), ("emu_event_destroy", event), ("emu_event_query", event),
            ("emu_event_synchronize", None), ("emu_stream_synchronize", c_void_p(12345)),
        ):
            assert core.status(function, *arguments) == INVALID_HANDLE, function
        watch = Stopwatch()
        core.call("emu_device_synchronize", 0)
        assert core.status("emu_device_synchronize", 1) == 101
    """)


def test_in_warp_an_hour_of_work_takes_no_time(run_core):
    run_core(
        """
        stream, watch = core.stream(), Stopwatch()
        begin = core.record(stream)
        core.launch(stream, 3600)
        end = core.record(stream)
        core.synchronize(stream)
        assert watch.s < 10
        assert core.elapsed_ms(begin, end) >= 3_600_000
        """,
        warp=1,
        constant_ns=1_000_000_000,
    )


def test_a_trace_shows_what_ran_and_when(run_core, tmp_path):
    run_core(
        """
        stream = core.stream()
        _, open_gate = core.gate(stream)
        core.launch(stream)
        core.work(stream, kind=1, name=b"gemm", flops=1e9, bytes=1e6, precision=1)
        open_gate()
        core.synchronize(stream)
        """,
        trace=tmp_path / "trace.json",
    )
    *_, kernel, gemm, _ = json.loads((tmp_path / "trace.json").read_text())
    assert (kernel["name"], kernel["dur"], kernel["args"]["grid"]) == ("kernel", 1000, [1, 1, 1])
    assert (gemm["name"], gemm["args"]["flops"], gemm["ts"]) == ("gemm", 1e9, kernel["ts"] + 1000)


def test_a_roofline_goes_by_the_slower_of_arithmetic_and_memory(run_core, tmp_path):
    run_core(
        """
        stream = core.default_stream()
        core.work(stream, kind=1, name=b"compute", flops=1e12, bytes=1e6, precision=1)
        core.work(stream, kind=1, name=b"memory", flops=1e6, bytes=1e10, precision=1)
        core.synchronize(stream)
        """,
        estimator="roofline",
        trace=tmp_path / "trace.json",
        warp=1,
    )
    compute, memory, _ = json.loads((tmp_path / "trace.json").read_text())
    assert 100_000 < compute["dur"] < 400_000  # 0.1 s at the peak rate of 1e13 FLOP/s
    assert 10_000 < memory["dur"] < 20_000  # 0.01 s at the peak of 1 TB/s
