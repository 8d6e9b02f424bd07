"""Shared by the border's threads: pauses after failures, and log lines about problems."""

from __future__ import annotations

import logging
from random import Random

FIRST_S, MOST_S = 0.2, 10.0
"""The first and the longest pause after a failure (host seconds)."""

logger = logging.getLogger("sharing_manager.kubernetes")


class BackOff:
    """Pauses that double with each failure, plus up to a quarter at random, so that nodes don't retry in step."""

    def __init__(self, chance: Random, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._chance, self._first_s, self._most_s = chance, first_s, most_s
        self.reset()

    def reset(self) -> None:
        self._next_s = self._first_s

    def next_s(self) -> float:
        """The next pause in seconds, from `first_s` to `most_s`."""
        wait_s = min(self._most_s, self._next_s * (1 + self._chance.random() / 4))
        self._next_s = min(self._most_s, 2 * self._next_s)
        return wait_s


class Complaint:
    """A recurring problem, which is logged when it begins, changes or ends, and not each time."""

    def __init__(self, recovered: str) -> None:
        self._recovered = recovered
        self.text = ""

    def say(self, text: str) -> None:
        if text != self.text:
            logger.warning("%s", text)
        self.text = text

    def over(self) -> None:
        if self.text:
            logger.info("%s", self._recovered)
        self.text = ""
