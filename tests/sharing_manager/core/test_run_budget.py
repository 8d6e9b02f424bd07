"""What a container that begins runs for ever leaves behind: its lifecycle events are bounded, and it may go on later."""

import contextlib

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, OutOfMemoryError, RefusedError
from emulator_runtime.memory.rules import Reservation
from sharing_manager.core.manager import MAX_REASON
from sharing_manager.grants.grant import RUN_EVERY_NS, RUNS_AT_ONCE
from sharing_manager.store.outbox import Outbox

CYCLES = 1000
CYCLE_NS = 16_000_000
"""What the guard's time budget lets one container do: 62 attachments and ends a second."""


def fail(node, pod, number):
    node.manager.fail(node.attach("t", pod), "x" * 4096)


def finish(node, pod, number):
    node.manager.finish(node.attach("t", pod), 5)


def begin_anew(node, pod, number):
    """The process begins again, with unlogged steps and a new out-of-memory event."""
    grant = node.attach("t", pod)
    node.manager.report_steps(grant.main, grant.steps_done + 1)
    with pytest.raises(OutOfMemoryError):
        node.manager.reserve(grant.main, Reservation(2**40, 2**40))


def go_back_and_forth(node, pod, number):
    """The process connects again and says each time that it has done another number of steps."""
    grant = node.attach("t", pod, number % 7)
    node.manager.report_steps(grant.main, grant.steps_done + 1)


@pytest.mark.parametrize("cycle", [fail, finish, begin_anew, go_back_and_forth])
def test_a_container_that_begins_runs_for_ever_leaves_little(pods, pod, uuids, cycle):
    pods.mint("t", uuids[0])
    for number in range(CYCLES):
        pods.clock.wait_until_ns(pods.clock.now_ns() + CYCLE_NS)
        with contextlib.suppress(ManagerUnavailableError):
            cycle(pods, pod("a"), number)
    runs = RUNS_AT_ONCE + CYCLES * CYCLE_NS // RUN_EVERY_NS
    rows = list(pods.log.after(0))
    assert len(rows) <= 5 * (runs + 1)
    assert max(len(event.detail) for event in rows) <= MAX_REASON
    outbox = Outbox(pods.log.path, "n1", lambda: 1)
    assert outbox.backlog().size_bytes < 50_000
    outbox.close()


def test_a_refused_container_is_told_when_it_may_go_on_and_loses_nothing(pods, pod, uuids):
    pods.mint("t", uuids[0])
    for _ in range(RUNS_AT_ONCE):
        finish(pods, pod("a"), 0)
    with pytest.raises(ManagerUnavailableError, match=r"begun 60 runs in a short time; the next may begin in 5\.0 s"):
        pods.attach("t", pod("a"))
    assert not pods.grant("t").live
    pods.clock.wait_until_ns(pods.clock.now_ns() + RUN_EVERY_NS)
    grant = pods.attach("t", pod("a"))
    assert (grant.live, grant.steps_done) == (True, 5)


def test_connections_of_a_run_do_not_count_nor_do_other_containers(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    for _ in range(3 * RUNS_AT_ONCE):
        pods.attach("t", pod("a"), grant.steps_done)
        pods.attach("t", pod("a"), main=False)
    assert pods.kinds("uid-a") == ["granted", "attached"]
    for _ in range(RUNS_AT_ONCE - 1):
        pods.attach("t", pod("a"))
    with pytest.raises(ManagerUnavailableError):
        pods.attach("t", pod("a"))
    pods.attach(pods.mint("other", uuids[1]), pod("b"))


def test_another_pod_can_not_use_up_the_runs_of_a_token(pods, pod, uuids):
    pods.attach(pods.mint("t", uuids[0]), pod("a"))
    for _ in range(2 * RUNS_AT_ONCE):
        with pytest.raises(RefusedError):
            pods.attach("t", pod("thief"))
    pods.attach("t", pod("a"))


def test_out_of_memory_after_each_reconnect_is_one_event(pods, pod, uuids):
    pods.mint("t", uuids[0])
    for _ in range(5):
        grant = pods.attach("t", pod("a"), 0)
        with pytest.raises(OutOfMemoryError):
            pods.manager.reserve(grant.main, Reservation(2**40, 2**40))
    assert pods.kinds("uid-a").count("oom") == 1


def test_an_owners_job_may_give_a_long_reason(node, uuids):
    node.manager.fail(node.manager.grant("a", [uuids[0]], 0), "x" * 1000)
    assert len(node.events("a")[-1].detail) == 1000
