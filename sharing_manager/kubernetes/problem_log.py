"""Log lines about problems that last: one when a problem begins or changes, and one when it is solved."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class ProblemLog:
    """One kind of problem. `solved` is logged when it ends."""

    def __init__(self, solved: str) -> None:
        self._solved = solved
        self.current = ""
        """The problem as it was last reported; "" if there is none."""

    def report(self, problem: str) -> None:
        """The problem exists. The same text in a row is logged once."""
        if problem != self.current:
            _log.warning("%s", problem)
        self.current = problem

    def clear(self) -> None:
        """The problem doesn't exist (any more)."""
        if self.current:
            _log.info("%s", self._solved)
        self.current = ""
