from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError, RefusedError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.workloads.several_managers import SeveralManagers


class Client:
    """A manager's client that records its calls."""

    def __init__(self, name, told, lease=None, error=None):
        self.name, self.told, self.answer, self.error, self.reconnects = name, told, lease, error, 2

    def lease(self, step, duration_ns, issue_ns, remaining_ns=0):
        self.told.append((self.name, "lease", step))
        return self.answer or Lease(issue_ns, issue_ns + duration_ns)

    def __getattr__(self, what):
        def tell(*values):
            self.told.append((self.name, what, *values))
            if self.error:
                raise self.error

        return tell


def several(*more):
    told = []
    return SeveralManagers([Client(name, told, **each) for name, each in zip("abc", more, strict=False)]), told


def test_all_are_asked_for_each_step_and_the_last_end_counts():
    managers, told = several({}, {"lease": Lease(12, 40)}, {})
    assert managers.lease(3, 10, 11) == Lease(11, 40)
    assert told[:3] == [(name, "demand", 3, 10, 11, 0) for name in "abc"]  # by all before any is waited for
    assert told[3:] == [("a", "lease", 3), ("b", "lease", 3), ("c", "lease", 3)]
    assert managers.reconnects == 6


def test_any_can_tell_to_stop():
    managers, told = several({}, {"lease": Lease(11, 11, stop=True)}, {})
    assert managers.lease(3, 10, 11).stop
    assert told[3:] == [("a", "lease", 3), ("b", "lease", 3)]


def test_everything_else_is_told_to_all_in_turn():
    managers, told = several({}, {})
    managers.attach(4)
    managers.reserve(1, 2)
    managers.queue(3, 4, 5, 6)
    managers.release(5)
    managers.finish(6)
    managers.fail("why")
    managers.close()
    said = [
        ("attach", 4),
        ("reserve", 1, 2),
        ("queue", 3, 4, 5, 6),
        ("release", 5),
        ("finish", 6),
        ("fail", "why"),
        ("close",),
    ]
    assert told == [(name, *each) for each in said for name in "ab"]


@pytest.mark.parametrize("end", ["release", "finish", "fail"])
def test_an_end_is_told_to_all_whatever_one_answers(end):
    managers, told = several({"error": RefusedError("no")}, {"error": ManagerUnavailableError("away")}, {})
    with pytest.raises(EmuGpuError, match="no"):
        getattr(managers, end)(7)
    assert told == [(name, end, 7) for name in "abc"]


def test_what_one_refuses_at_the_start_is_the_end_of_it():
    managers, told = several({"error": RefusedError("no")}, {})
    with pytest.raises(RefusedError):
        managers.attach(0)
    assert told == [("a", "attach", 0)]
