"""Leader election: one replica acts, the others wait. The leader holds a Lease (coordination.k8s.io) and renews it.

A candidate measures by its own clock how long the Lease has not changed, and never compares clocks of two hosts (as client-go,
tools/leaderelection). The leader gives up before others may take over, and callers check `holds` before every write, so a replica
that was frozen notices before it acts. Writes need preconditions nevertheless: time may pass between the check and the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from operators.kube.api import LEASE, Api, ConflictError, Json, NotThereError
from operators.kube.documents import object_at, text_at, whole_at
from operators.kube.timestamps import rfc3339_micro


class LeadershipLostError(ClusterError):
    """This replica may not act any more; it must be started anew and wait for the Lease."""

    code = "leadership-lost"


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: others wait `lease` after the last renewal; the leader renews every `retry`, stops `give_up` after the last."""

    lease: float = 15.0
    give_up: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """The Lease, and who wants it."""

    namespace: str
    lease: str
    identity: str
    terms: Terms = field(default_factory=Terms)


class Leader:
    """`acquire`, then `keep` beside the work. `monotonic_ns` for durations, `wall_ns` for the times in the Lease."""

    def __init__(
        self, api: Api, candidate: Candidate, monotonic_ns: Callable[[], int], wall_ns: Callable[[], int]
    ) -> None:
        self._api, self._candidate = api, candidate
        self._monotonic_ns, self._wall_ns = monotonic_ns, wall_ns
        self._lease: Json = {}
        self._seen: tuple[str, int] = ("", 0)
        self._holder = ""
        self._renewed_ns: int | None = None

    @property
    def holds(self) -> bool:
        """Whether this replica may act now."""
        give_up_ns = round(self._candidate.terms.give_up * NS_PER_S)
        return self._renewed_ns is not None and self._monotonic_ns() - self._renewed_ns < give_up_ns

    async def acquire(self, say: Callable[[str], None]) -> None:
        """Returns when this replica holds the Lease. `say` logs failures, and the present holder.

        Raises what Api raises where a retry doesn't help: a right or the namespace is missing.
        """
        logged = ""
        while True:
            try:
                if await self._try():
                    return
                if self._holder != logged:
                    logged = self._holder
                    say(f"lease {self._name}: is held by {logged}; waiting")
            except ConflictError:
                pass  # another candidate was faster
            except EmuGpuError as error:
                if not error.retry_helps:
                    raise
                say(str(error))
            await asyncio.sleep(self._candidate.terms.retry)

    async def keep(self, say: Callable[[str], None]) -> None:
        """Renews the Lease until cancelled. Raises LeadershipLostError when another holds it, or no renewal succeeded in time."""
        while True:
            await asyncio.sleep(self._candidate.terms.retry)
            try:
                async with asyncio.timeout(self._left_s()):
                    await self._renew()
            except LeadershipLostError:
                raise
            except TimeoutError:
                pass
            except EmuGpuError as error:
                say(str(error))
            if not self.holds:
                raise LeadershipLostError(
                    f"lease {self._name}: not renewed for {self._candidate.terms.give_up:g} s; ending"
                )

    async def release(self) -> None:
        """Let another candidate take the Lease at once. Errors don't matter: the Lease expires by itself."""
        if not self.holds:
            return
        self._renewed_ns = None
        document = self._document(self._lease, acquired=False)
        document["spec"]["holderIdentity"] = ""
        try:
            await self._api.replace(LEASE, document)
        except EmuGpuError:
            return

    @property
    def _name(self) -> str:
        return f"{self._candidate.namespace}/{self._candidate.lease}"

    def _left_s(self) -> float:
        since_ns = self._monotonic_ns() - (self._renewed_ns or 0)
        return max(0.0, self._candidate.terms.give_up - since_ns / NS_PER_S)

    async def _renew(self) -> None:
        began_ns = self._monotonic_ns()
        try:
            self._lease = await self._api.replace(LEASE, self._document(self._lease, acquired=False))
        except ConflictError:
            await self._look_again()
        else:
            self._renewed_ns = began_ns

    async def _look_again(self) -> None:
        """Another writer changed the Lease: an annotation, or its holder."""
        found = await self._found()
        holder = text_at(object_at(found, "spec"), "holderIdentity")
        if holder != self._candidate.identity:
            self._renewed_ns = None
            raise LeadershipLostError(f"lease {self._name}: is held by {holder or 'nobody'} now; ending")
        self._lease = found

    async def _found(self) -> Json:
        try:
            return await self._api.get(LEASE, self._candidate.lease, self._candidate.namespace)
        except NotThereError:
            return {}

    async def _try(self) -> bool:
        began_ns = self._monotonic_ns()
        found = await self._found()
        if not found:
            self._lease = await self._api.create(LEASE, self._document({}, acquired=True))
        elif self._is_free(found):
            try:
                self._lease = await self._api.replace(LEASE, self._document(found, acquired=True))
            except NotThereError:
                return False  # deleted just now
        else:
            return False
        self._renewed_ns = began_ns
        return True

    def _is_free(self, found: Json) -> bool:
        """Nobody's, our own from before, or not renewed since this replica first saw it so for as long as it says."""
        spec = object_at(found, "spec")
        holder = text_at(spec, "holderIdentity")
        if holder in ("", self._candidate.identity):
            return True
        self._holder = holder
        version = text_at(object_at(found, "metadata"), "resourceVersion")
        if version != self._seen[0]:
            self._seen = version, self._monotonic_ns()
        lasts_s = whole_at(spec, "leaseDurationSeconds") or self._candidate.terms.lease
        return self._monotonic_ns() - self._seen[1] >= lasts_s * NS_PER_S

    def _document(self, before: Json, *, acquired: bool) -> Json:
        spec = dict(object_at(before, "spec"))
        now = rfc3339_micro(self._wall_ns())
        taken: dict[str, Any] = {
            "holderIdentity": self._candidate.identity,
            "leaseDurationSeconds": max(1, round(self._candidate.terms.lease)),
            "renewTime": now,
        }
        if acquired:
            changes = whole_at(spec, "leaseTransitions") + (1 if before else 0)
            taken |= {"acquireTime": now, "leaseTransitions": changes}
        metadata: Json = {"name": self._candidate.lease, "namespace": self._candidate.namespace}
        if before:
            metadata = dict(object_at(before, "metadata"))
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec | taken,
        }
