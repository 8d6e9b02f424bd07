"""The current offer of one resource. The kubelet's streams read it; the daemon updates it from the inventory."""

from __future__ import annotations

import threading
from collections.abc import Callable

from deviceplugin.resources.offer import Offer


class OfferBook:
    """The current offer. Readers wait for a change without polling."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._changed = threading.Condition()

    @property
    def offer(self) -> Offer:
        return self._offer

    def update(self, offer: Offer) -> None:
        """Replace the offer and wake the readers; no effect if the offer is equal."""
        with self._changed:
            if offer != self._offer:
                self._offer = offer
                self._changed.notify_all()

    def wake(self) -> None:
        """Let all waiting readers check their `ended` again."""
        with self._changed:
            self._changed.notify_all()

    def after(self, seen: Offer | None, ended: Callable[[], bool]) -> Offer | None:
        """Wait until the offer differs from `seen` and return it; None if `ended` becomes true first."""
        with self._changed:
            self._changed.wait_for(lambda: ended() or self._offer != seen)
            return None if ended() else self._offer
