"""All grants of a node in memory, indexed by digest and by job. Of the ended ones, only the latest are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from sharing_manager.grants.binding import Mark, mark
from sharing_manager.grants.grant import Grant

MAX_ENDED = 1000
"""Number of ended grants that are kept. A job whose last reply was lost repeats its request within seconds; people look at
such a grant within a day."""
_BATCH = 50
"""Old grants are forgotten in batches of at least this size."""


class Registry:
    """Grants by digest, and owners' grants by job. `marks` has the newest token that attached to each device id."""

    def __init__(self, max_ended: int = MAX_ENDED) -> None:
        self._max_ended = max_ended
        self._by_digest: dict[str, Grant] = {}
        self._by_job: dict[str, Grant] = {}
        self._ended_grants: deque[Grant] = deque()
        self.marks: dict[str, Mark] = {}

    def add(self, grant: Grant) -> None:
        self._by_digest[grant.digest] = grant
        if grant.of_owner:
            self._by_job[grant.job_id] = grant
        elif grant.bound:
            self.attached(grant)
        if grant.ended:
            self._ended_grants.append(grant)

    def remove(self, grant: Grant) -> None:
        self._by_digest.pop(grant.digest, None)
        if self._by_job.get(grant.job_id) is grant:
            del self._by_job[grant.job_id]

    def attached(self, grant: Grant) -> None:
        """Record that a pod has attached with this grant."""
        mark(grant, self.marks)

    def record_end(self, grant: Grant) -> list[str]:
        """Record that the grant has ended. Returns the digests of older grants that are forgotten now. The grants that
        hold the newest token of a device are kept; otherwise an older token could attach again."""
        self._ended_grants.append(grant)
        if len(self._ended_grants) < self._max_ended + _BATCH:
            return []
        oldest = [self._ended_grants.popleft() for _ in range(len(self._ended_grants) - self._max_ended)]
        kept = [old for old in oldest if self._is_mark(old)]
        self._ended_grants.extendleft(reversed(kept))
        forgotten = [old for old in oldest if not self._is_mark(old)]
        for old in forgotten:
            self.remove(old)
        return [old.digest for old in forgotten]

    def _is_mark(self, grant: Grant) -> bool:
        return not grant.of_owner and any(
            (newest := self.marks.get(device)) is not None and newest.minted_ns == grant.minted_ns
            for device in grant.ids
        )

    def all(self) -> Iterable[Grant]:
        return self._by_digest.values()

    def find(self, digest: str) -> Grant | None:
        return self._by_digest.get(digest)

    def of_owner(self, job_id: str) -> Grant | None:
        """The owner's latest grant to this job."""
        return self._by_job.get(job_id)

    def of_job(self, job_id: str) -> Iterator[Grant]:
        """The owner's latest grant to this job, and the grants of its pods."""
        owners = self._by_job.get(job_id)
        if owners is not None:
            yield owners
        for grant in self._by_digest.values():
            if grant.job_id == job_id and not grant.of_owner and grant.bound:
                yield grant
