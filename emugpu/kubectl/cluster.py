"""Synchronous access to the API server for one command; refusals become messages with a fix for the user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeVar

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.kube.api import Api, ForbiddenError, Json, NotThereError, Resource

T = TypeVar("T")
RIGHTS = "docs/kubectl.md lists the rights that each command needs"
NO_EMUJOBS = "this cluster has no resource EmuJob: install the chart (`emugpu cluster up`, or Helm)"


class ClosableApi(Api, Protocol):
    """An Api with connections."""

    async def close(self) -> None: ...


class Cluster:
    """A context manager. `namespace`: the default of commands. `wall_ns`: the time in nanoseconds since 1970."""

    def __init__(self, api: ClosableApi, namespace: str, wall_ns: Callable[[], int] = wall_ns) -> None:
        self._api, self.namespace, self._wall_ns = api, namespace, wall_ns
        self._runner = asyncio.Runner()

    def now_s(self) -> float:
        """Seconds since 1970."""
        return self._wall_ns() / 1e9

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._api.close())
        self._runner.close()

    def ask(self, question: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        """The answer. Raises ClusterError with one line if there is none."""
        try:
            return self._runner.run(question(self._api))
        except ForbiddenError as error:
            raise ClusterError(f"{refusal(error)}; {RIGHTS}") from error


def refusal(error: Exception) -> str:
    """The API server's message, without the hint for the operator's own accounts."""
    return str(error).partition("; the chart's RBAC")[0]


async def listed(api: Api, resource: Resource, *, namespace: str = "", labels: str = "") -> list[Json]:
    """All objects. Raises NotThereError if the cluster has no such resource."""
    return (await api.list(resource, namespace=namespace, labels=labels))[1]


async def if_allowed(answer: Awaitable[T], otherwise: T, missing: list[str]) -> T:
    """The answer, or `otherwise` if it is refused or doesn't exist; then `missing` gets the reason."""
    try:
        return await answer
    except (ForbiddenError, NotThereError) as error:
        missing.append(refusal(error))
        return otherwise
