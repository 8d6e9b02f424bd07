"""Authentication and authorization: one interface for a cluster's tokens and for a laptop's one-time link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

WHOLE_CLUSTER = ""
"""Instead of a namespace: all namespaces."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as the API server knows it (authentication.k8s.io/v1, UserInfo)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def tenant(self) -> str:
        """The tenant whose share of streams and reviews the user takes. Service accounts of a namespace have one share: a user
        who may create one of them may create a thousand."""
        return self.user.rpartition(":")[0] if self.user.startswith("system:serviceaccount:") else self.user


class Access(Protocol):
    """Calls raise ApiAwayError if the API server can't be reached."""

    async def exchange(self, token: str) -> str | None:
        """What a session stores for `authenticate` instead of this token; None: the token is invalid."""
        ...

    async def authenticate(self, token: str) -> Principal | None:
        """The user of the token; None: the token is invalid."""
        ...

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        """Whether the user may get, list or patch emujobs.emugpu.dev in the namespace."""
        ...
