from __future__ import annotations

import logging

from sharing_manager.kubernetes.problem_log import ProblemLog


def test_a_problem_is_logged_when_it_begins_changes_and_ends(caplog) -> None:
    caplog.set_level(logging.INFO)
    problems = ProblemLog("solved")
    problems.clear()
    for text in ("away", "away", "forbidden", "away"):
        problems.report(text)
    problems.clear()
    problems.clear()
    assert caplog.messages == ["away", "forbidden", "away", "solved"]
