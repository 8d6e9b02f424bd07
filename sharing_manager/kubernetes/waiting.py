"""What the border's threads share: how they wait after a failure and say what is wrong."""

from __future__ import annotations

import logging
from random import Random

FIRST_S, MOST_S = 0.2, 10.0
"""After a failure the first wait is this short and later ones grow to this (host seconds)."""

logger = logging.getLogger("sharing_manager.kubernetes")


class BackOff:
    """Waits that double from failure to failure, each up to a quarter longer by chance, so that nodes don't come in step."""

    def __init__(self, chance: Random, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._chance, self._first_s, self._most_s = chance, first_s, most_s
        self.reset()

    def reset(self) -> None:
        self._next_s = self._first_s

    def next_s(self) -> float:
        """How long to wait now, in seconds, from `first_s` to `most_s`."""
        wait_s = min(self._most_s, self._next_s * (1 + self._chance.random() / 4))
        self._next_s = min(self._most_s, 2 * self._next_s)
        return wait_s


class Complaint:
    """One thing that may go wrong again and again: logged when it begins, changes and ends, not each time."""

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
