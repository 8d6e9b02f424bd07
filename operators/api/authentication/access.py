"""Who asks, and what they may: one interface for a cluster's tokens and for a laptop's one-time link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

WHOLE_CLUSTER = ""
"""As a namespace: all of them."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as the API server knows it (authentication.k8s.io/v1, UserInfo)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def tenant(self) -> str:
        """Whose share of streams and reviews the user takes: service accounts of one namespace share one, since whoever may
        create one there may create a thousand."""
        return self.user.rpartition(":")[0] if self.user.startswith("system:serviceaccount:") else self.user


class Access(Protocol):
    """Raises ApiAwayError where the one who knows can't be asked."""

    async def exchange(self, token: str) -> str | None:
        """What a session keeps in the place of this token, for `authenticate`; None: the token is not good."""
        ...

    async def authenticate(self, token: str) -> Principal | None:
        """Whose token it is; None: nobody's."""
        ...

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        """Whether they may get, list or patch emujobs.emugpu.dev there."""
        ...
