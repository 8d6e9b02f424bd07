from __future__ import annotations

import pytest

from emulator_runtime.domain import errors
from emulator_runtime.domain.errors import EmuGpuError, InputError, ManagerUnavailableError, UnknownNameError

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, EmuGpuError)]


@pytest.mark.parametrize("error_class", CLASSES)
def test_each_class_is_drawn_in_the_tree_and_has_a_code_of_its_own(error_class):
    assert error_class.__name__ in (errors.__doc__ or "")
    assert [c.code for c in CLASSES].count(error_class.code) == 1


def test_a_retry_helps_only_where_the_manager_is_away():
    assert [c for c in CLASSES if c.retry_helps] == [ManagerUnavailableError]


def test_an_input_error_names_the_place_first():
    error = InputError("jobs.csv:3: steps", "must be a whole number")
    assert str(error) == "jobs.csv:3: steps: must be a whole number"
    assert error.place == "jobs.csv:3: steps"


def test_an_unknown_name_comes_with_the_nearest_ones():
    error = UnknownNameError("--policy", "policy", "strf", ["srtf", "fifo", "las"])
    assert str(error) == "--policy: unknown policy 'strf'; did you mean srtf?"


def test_an_unknown_name_like_no_other_comes_with_all_of_them():
    assert str(UnknownNameError("x", "policy", "zzz", ["b", "a"])) == "x: unknown policy 'zzz'; known: a, b"
    assert str(UnknownNameError("x", "policy", "zzz", [])) == "x: unknown policy 'zzz'; known: none"
