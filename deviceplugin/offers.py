"""What one resource offers at the moment, read by the kubelet's streams and changed by the inventory's watcher."""

from __future__ import annotations

import threading
from collections.abc import Callable

from deviceplugin.container import Offer


class OfferBook:
    """The current offer. Readers wait for the next one without polling."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._changed = threading.Condition()

    @property
    def offer(self) -> Offer:
        return self._offer

    def update(self, offer: Offer) -> None:
        """Replace the offer and wake whoever waits; the same again wakes nobody."""
        with self._changed:
            if offer != self._offer:
                self._offer = offer
                self._changed.notify_all()

    def wake(self) -> None:
        """Let all that wait look at their `ended` again."""
        with self._changed:
            self._changed.notify_all()

    def after(self, seen: Offer | None, ended: Callable[[], bool]) -> Offer | None:
        """The offer as soon as it isn't `seen`; None as soon as `ended`."""
        with self._changed:
            self._changed.wait_for(lambda: ended() or self._offer != seen)
            return None if ended() else self._offer
