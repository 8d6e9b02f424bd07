"""When a warp clock may jump: all participants wait, and no message is under way."""

import pytest

from emulator_runtime.timing.warp import WarpCoordinator


@pytest.fixture
def two():
    """A job and a manager, both busy."""
    coordinator = WarpCoordinator()
    coordinator.register("job")
    coordinator.register("manager", decides=True)
    return coordinator


def test_time_stands_while_somebody_is_busy(two):
    assert not two.all_wait
    two.waits("job", 50)
    assert not two.all_wait
    two.waits("manager", 70)
    assert two.all_wait
    assert two.earliest_ns() == 50
    two.busy("job")
    assert not two.all_wait
    two.leave("job")
    assert two.all_wait
    assert two.earliest_ns() == 70


def test_a_name_is_used_once(two):
    with pytest.raises(ValueError, match="'job' is registered already"):
        two.register("job")


def test_who_decides_is_woken_after_all_others_of_the_same_time(two):
    two.waits("job", 50)
    two.waits("manager", 50)
    assert two.due(49) == []
    assert two.due(50) == ["job"]
    assert two.due(50) == []
    assert two.earliest_ns() is None  # nobody can be woken before the job waits again
    two.waits("job", 90)
    assert two.due(50) == ["manager"]
    assert two.due(100) == ["job"]  # the manager is busy, but a deadline is a deadline
    two.waits("manager", 95)
    assert two.due(100) == []


def test_a_report_from_before_the_last_message_does_not_count(two):
    two.waits("job", handled=0)
    two.waits("manager", 50, handled=0)
    two.sends_to("manager")
    two.waits("manager", 50, handled=0)  # it was under way
    assert not two.all_wait
    two.waits("manager", 60, handled=1)
    assert two.all_wait
    assert two.due(60) == ["manager"]
    two.waits("manager", handled=1)
    assert not two.all_wait
    two.waits("manager", handled=2)
    assert two.all_wait


def test_who_connects_again_says_how_much_it_has_handled():
    coordinator = WarpCoordinator()
    coordinator.register("manager", decides=True, handled=7)
    coordinator.waits("manager", handled=6)
    assert not coordinator.all_wait
    coordinator.waits("manager", handled=7)
    assert coordinator.all_wait


def test_time_stands_while_a_message_is_under_way(two):
    two.waits("job", 50, frames={"c.1": (2, 1)})
    two.waits("manager", frames={"c.1": (1, 1)})
    assert not two.all_wait  # the job's second message
    two.waits("manager", 20, frames={"c.1": (2, 2)})
    assert not two.all_wait  # the manager's answer
    assert two.earliest_ns() == 50  # time may pass, but the manager can't decide yet
    assert two.due(30) == []
    two.waits("job", 50, frames={"c.1": (2, 2)})
    assert two.all_wait
    assert two.due(30) == ["manager"]


def test_a_connection_counts_from_its_first_message(two):
    two.waits("manager")
    two.waits("job", 50, frames={"c.1": (1, 0)})
    assert not two.all_wait  # the manager hasn't even seen it
    two.waits("manager", frames={"c.1": (1, 1)})
    two.waits("job", 50, frames={"c.1": (1, 1)})
    assert two.all_wait


def test_a_connection_that_was_closed_counts_no_more(two):
    two.waits("job", 50, frames={"c.1": (5, 1)})
    two.waits("manager", frames={"c.1": (1, 4)})
    assert not two.all_wait
    two.waits("job", 50, frames={"c.2": (1, 0)})
    two.waits("manager", frames={"c.1": None, "c.2": (0, 1)})
    assert two.all_wait
    two.waits("job", 50, frames={"c.2": (2, 0)})
    two.leave("job")
    assert two.all_wait


def test_a_manager_that_died_keeps_time_still_until_its_jobs_have_found_out(two):
    two.waits("job", 50, frames={"c.1": (1, 1)})
    two.waits("manager", frames={"c.1": (1, 1)})
    two.leave("manager")
    two.register("manager", decides=True)
    two.waits("manager")
    assert not two.all_wait
    two.waits("job", 50, frames={})
    assert two.all_wait
