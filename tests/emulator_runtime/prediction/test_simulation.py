"""One rank, worked by hand: what its streams, engines and host do when. Times are in nanoseconds."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import DeadlockError
from emulator_runtime.prediction.simulation import QUEUE_DEPTH
from tests.support.traces import Host, Stated, run, times


def test_work_of_a_stream_is_done_in_its_order_behind_the_host() -> None:
    host = Host()
    first = host.launch(100)
    host.at = 30
    second = host.launch(100)  # behind the first one
    host.at = 500
    third = host.launch(100)  # the device has waited for the host since 200
    (done,) = run(host)
    found = times(done)
    assert (found[first], found[second], found[third]) == ((0, 100), (100, 200), (500, 600))
    assert done.end_ns == 600
    assert list(done.compute[0].starts) == [0, 500]
    assert list(done.compute[0].ends) == [200, 600]


def test_streams_share_the_compute_units() -> None:
    """The second stream's work is ready at 10, but the units are taken until 100."""
    host = Host()
    one = host.launch(100, stream=1)
    host.at = 10
    two = host.launch(50, stream=2)
    (done,) = run(host)
    assert times(done) == {one: (0, 100), two: (100, 150)}


def test_copies_run_beside_kernels_and_each_other() -> None:
    """Compute units, copies in and copies out are three engines; a copy on the device needs the compute units."""
    host = Host()
    kernel = host.launch(100, stream=1)
    to_device = host.copy(70, stream=2)
    to_host = host.copy(60, stream=3, to=-1, source=0)
    also_in = host.copy(40, stream=4)  # behind the other copy in
    on_device = host.copy(10, stream=5, to=0, source=0)  # behind the kernel
    to_peer = host.copy(5, stream=6, to=1, source=0)  # behind the copy out
    (done,) = run(host)
    assert times(done) == {
        kernel: (0, 100),
        to_device: (0, 70),
        to_host: (0, 60),
        also_in: (70, 110),
        on_device: (100, 110),
        to_peer: (60, 65),
    }


def test_a_copy_within_the_host_takes_no_engine() -> None:
    host = Host()
    one, two = host.copy(50, 1, to=-1, source=-1), host.copy(50, 2, to=-1, source=-1)
    (done,) = run(host)
    assert times(done) == {one: (0, 50), two: (0, 50)}


def test_later_work_fills_the_gaps_that_earlier_work_leaves() -> None:
    """Stream 1 copies until 100 and computes from 100 to 110, which is known when it is issued. The 30 and 90 of stream 2 fit
    before and around it: 0 to 30, then 30 to 100 and 110 to 130."""
    host = Host()
    copy, behind = host.copy(100, stream=1), host.launch(10, stream=1)
    short, long = host.launch(30, stream=2), host.launch(90, stream=2)
    (done,) = run(host)
    assert times(done) == {copy: (0, 100), behind: (100, 110), short: (0, 30), long: (30, 130)}
    assert list(zip(done.compute[0].starts, done.compute[0].ends, strict=True)) == [(0, 130)]


def test_a_stream_waits_for_a_moment_of_another() -> None:
    host = Host()
    copy = host.copy(80, stream=1)
    moment = host.mark(stream=1)
    later = host.copy(80, stream=1)  # isn't waited for
    host.wait(moment, stream=2)
    kernel = host.launch(10, stream=2)
    (done,) = run(host)
    assert times(done) == {copy: (0, 80), later: (80, 160), kernel: (80, 90)}


def test_a_moment_that_passed_long_ago_holds_nobody() -> None:
    host = Host()
    host.launch(10, stream=1)
    moment = host.mark(stream=1)
    host.at = 100
    host.wait(moment, stream=2)
    kernel = host.launch(10, stream=2)
    assert times(run(host)[0])[kernel] == (100, 110)


def test_a_moment_may_be_set_after_a_stream_began_to_wait_for_it() -> None:
    host = Host()
    host.wait(1, stream=2)
    kernel = host.launch(10, stream=2)
    host.at = 40
    host.launch(25, stream=1)
    assert host.mark(stream=1) == 1
    assert times(run(host)[0])[kernel] == (65, 75)


def test_a_host_that_waits_comes_later_by_its_wait() -> None:
    """Recorded at 20, the wait lasts until the kernel ends at 100; what was recorded 5 later is called at 105."""
    host = Host()
    host.launch(100)
    moment = host.mark()
    host.at = 20
    wait = host.synchronize(moment)
    host.at = 25
    kernel = host.launch(100)
    host.at = 60
    other = host.launch(10, stream=1)
    (done,) = run(host)
    found = times(done)
    assert found[wait] == (20, 100)
    assert found[kernel] == (105, 205)
    assert found[other] == (205, 215), "called at 140, but the units are taken"


def test_a_wait_that_is_over_takes_no_time() -> None:
    host = Host()
    host.launch(10)
    moment = host.mark()
    host.at = 50
    wait = host.synchronize(moment)
    kernel = host.launch(10)
    found = times(run(host)[0])
    assert (found[wait], found[kernel]) == ((50, 50), (50, 60))


def test_a_wait_at_the_end_counts() -> None:
    host = Host()
    host.launch(100)
    host.synchronize(host.mark())
    (done,) = run(host)
    assert done.end_ns == 100
    assert list(done.host_waits.ends_ns) == [100]


def test_other_threads_go_on_until_the_one_that_waited_does() -> None:
    host = Host()
    host.launch(100)
    moment = host.mark()
    host.synchronize(moment)
    host.thread, host.at = 1, 10
    beside = host.copy(5, stream=1)
    host.thread, host.at = 0, 30
    after = host.copy(5, stream=1)  # 30 after the wait, which ended at 100
    host.thread, host.at = 1, 40
    behind = host.copy(5, stream=1)  # 10 after that
    found = times(run(host)[0])
    assert (found[beside], found[after], found[behind]) == ((10, 15), (130, 135), (140, 145))


def test_a_function_of_the_host_holds_its_stream_only() -> None:
    host = Host()
    function, behind = host.function(70, stream=1), host.launch(10, stream=1)
    beside = host.launch(20, stream=2)
    assert times(run(host)[0]) == {function: (0, 70), behind: (70, 80), beside: (0, 20)}


def test_an_over_eager_host_is_held_when_a_stream_is_full() -> None:
    """1024 launches of 10 are queued; the next waits until the first has ended at 10, the one after it until 20."""
    host = Host()
    for _ in range(QUEUE_DEPTH):
        host.launch(10)
    held = host.launch(10)
    also_held = host.launch(10)
    beside = host.copy(1, stream=1)
    (done,) = run(host)
    found = times(done)
    assert found[beside] == (20, 21), "by when the host comes to it"
    assert list(zip(done.host_waits.records, done.host_waits.starts_ns, done.host_waits.ends_ns, strict=True)) == [
        (held, 0, 10),
        (also_held, 10, 20),
    ]


def test_a_slower_measured_host_delays_launches_but_no_graph() -> None:
    """30 between two launches: those of 10 begin at 0, 30, 60. Copies and the parts of a graph wait for nobody."""
    host = Host()
    launches = [host.launch(10) for _ in range(3)]
    copy = host.copy(1, stream=1)
    graph = host.launch(10, stream=2, dispatched=False)
    (done,) = run(host, stated=Stated(dispatch_ns=30))
    found = times(done)
    assert [found[launch][0] for launch in launches] == [0, 30, 60]
    assert found[copy] == (0, 1)
    assert found[graph] == (10, 20)


def test_the_largest_memory_counts() -> None:
    host = Host()
    for used in (100, 700, 300):
        host.memory(used)
    assert run(host)[0].memory_peaks == {0: 700}


def test_a_moment_that_never_comes_is_an_error_that_names_it() -> None:
    host = Host(rank=3)
    host.launch(10)
    wait = host.synchronize(77)
    host.launch(10)
    with pytest.raises(DeadlockError, match=rf"rank 3: its host waits for moment 77 \(record {wait}\)"):
        run(host)


def test_a_wait_for_ever_at_the_end_is_an_error() -> None:
    host = Host()
    host.synchronize(5)
    with pytest.raises(DeadlockError, match="its host waits for moment 5"):
        run(host)


def test_a_stream_that_waits_for_ever_is_an_error_that_names_it() -> None:
    host = Host()
    host.wait(5, stream=2)
    with pytest.raises(DeadlockError, match=r"stream 2 of device 0 waits for moment 5 \(record 0\), which no record"):
        run(host)


def test_streams_that_wait_for_each_other_are_an_error() -> None:
    host = Host()
    host.wait(2, stream=1)
    host.mark(stream=1)
    host.wait(1, stream=2)
    host.mark(stream=2)
    with pytest.raises(
        DeadlockError, match=r"moment 2 .*whose stream doesn't come to it, stream 2 of device 0 waits for moment 1"
    ):
        run(host)


def test_a_full_queue_behind_what_never_comes_is_an_error() -> None:
    host = Host()
    host.wait(9, stream=0)
    for _ in range(QUEUE_DEPTH + 1):
        host.launch(1)
    with pytest.raises(DeadlockError, match="its host waits for a place in a stream's queue, stream 0"):
        run(host)


def test_a_rank_without_records_has_done_nothing() -> None:
    assert run(Host())[0].end_ns == 0
