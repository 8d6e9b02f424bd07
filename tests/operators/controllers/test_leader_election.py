"""Two replicas and one lease, on a clock that the test moves: never two that may act."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from emulator_runtime.timing.host import monotonic_ns
from operators.controllers.leader_election import Candidate, Leader, LeadershipLostError, Terms
from operators.kube.api import LEASE, ApiAwayError, ConflictError, ForbiddenError, NotThereError
from tests.support.fake_api import FakeApi

TERMS = Terms(lease=15.0, give_up=10.0, retry=0.001)


class Clocks:
    """One host's time in nanoseconds."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def __call__(self) -> int:
        return self.now_ns

    def later(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


def replica(api: FakeApi, name: str, clock: Clocks) -> Leader:
    return Leader(api, Candidate("emugpu", "l", name, TERMS), clock, lambda: clock.now_ns)


def holder(api: FakeApi) -> object:
    return api.stored(LEASE, "emugpu/l")["spec"]["holderIdentity"]


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_one_holds_the_other_waits_until_it_is_released() -> None:
    api, clock = FakeApi(), Clocks()
    one, two = replica(api, "one", clock), replica(api, "two", clock)

    async def story() -> None:
        await one.acquire(print)
        waiting = asyncio.create_task(two.acquire(print))
        await asyncio.sleep(0.02)
        assert (one.holds, two.holds, waiting.done()) == (True, False, False)
        await one.release()
        await waiting
        assert (one.holds, two.holds, holder(api)) == (False, True, "two")
        assert api.stored(LEASE, "emugpu/l")["spec"]["leaseTransitions"] == 1

    play(story)


def test_who_is_cut_off_gives_up_before_another_takes_over() -> None:
    api, clock = FakeApi(), Clocks()
    one, two = replica(api, "one", clock), replica(api, "two", clock)

    async def story() -> None:
        await one.acquire(print)
        waiting = asyncio.create_task(two.acquire(print))
        await asyncio.sleep(0.01)  # it has seen the lease now
        clock.later(9.9)
        assert one.holds
        clock.later(0.2)
        await asyncio.sleep(0.01)
        assert (one.holds, two.holds) == (False, False)
        clock.later(5)
        await waiting
        assert two.holds
        with pytest.raises(LeadershipLostError, match="is held by two now; ending"):
            await one.keep(print)
        assert not one.holds

    play(story)


def test_a_lease_that_is_renewed_is_kept() -> None:
    api, clock = FakeApi(), Clocks()
    one, two = replica(api, "one", clock), replica(api, "two", clock)

    async def story() -> None:
        await one.acquire(print)
        keeping = asyncio.create_task(one.keep(print))
        waiting = asyncio.create_task(two.acquire(print))
        for _ in range(10):
            clock.later(4)
            version = api.stored(LEASE, "emugpu/l")["metadata"]["resourceVersion"]
            while api.stored(LEASE, "emugpu/l")["metadata"]["resourceVersion"] == version:
                await asyncio.sleep(0.001)
            assert one.holds and not two.holds
        keeping.cancel()
        waiting.cancel()
        await asyncio.wait([keeping, waiting])

    play(story)


def test_failures_are_reported_and_end_it_only_after_a_while() -> None:
    api, clock = FakeApi(), Clocks()
    one = replica(api, "one", clock)
    said: list[str] = []

    async def story() -> None:
        api.failures = {"get": [ApiAwayError("get leases l: away")]}
        await one.acquire(said.append)
        api.failures = {"replace": [ApiAwayError("replace leases l: away")] * 1000}
        keeping = asyncio.create_task(one.keep(said.append))
        while len(said) < 3:
            await asyncio.sleep(0.001)
        assert one.holds
        clock.later(11)
        with pytest.raises(LeadershipLostError, match="not renewed for 10 s; ending"):
            await keeping

    play(story)
    assert said[:2] == ["get leases l: away", "replace leases l: away"]


def test_a_look_at_a_changed_lease_may_fail_too() -> None:
    api, clock = FakeApi(), Clocks()
    one = replica(api, "one", clock)
    said: list[str] = []

    async def story() -> None:
        await one.acquire(print)
        api.failures = {"replace": [ConflictError("changed")], "get": [ApiAwayError("get leases l: away")]}
        keeping = asyncio.create_task(one.keep(said.append))
        writes = len(api.log)
        while not keeping.done() and len(api.log) == writes:
            await asyncio.sleep(0.001)
        assert not keeping.done() and one.holds
        keeping.cancel()
        await asyncio.wait([keeping])

    play(story)
    assert said == ["get leases l: away"]


def test_a_look_at_a_changed_lease_takes_no_longer_than_the_lease_may_be_held() -> None:
    clock = Clocks()

    class Silent(FakeApi):
        """It answers no question after the first."""

        asked = 0

        async def get(self, *args: Any) -> Any:
            self.asked += 1
            return await super().get(*args) if self.asked == 1 else await asyncio.Event().wait()

    async def story() -> None:
        api = Silent()
        one = Leader(api, Candidate("emugpu", "l", "one", Terms(0.3, 0.2, 0.01)), monotonic_ns, clock)
        await one.acquire(print)
        api.failures = {"replace": [ConflictError("changed")]}
        with pytest.raises(LeadershipLostError, match=r"not renewed for 0\.2 s; ending"):
            await one.keep(print)

    play(story)


def test_what_no_retry_helps_against_ends_the_waiting() -> None:
    api, clock = FakeApi(), Clocks()
    one = replica(api, "one", clock)
    said: list[str] = []

    async def story() -> None:
        api.failures = {"get": [ForbiddenError("get leases l: forbidden")]}
        with pytest.raises(ForbiddenError):
            await one.acquire(said.append)
        api.failures = {"create": [NotThereError("namespaces emugpu: not found")]}
        with pytest.raises(NotThereError):
            await one.acquire(said.append)
        await replica(api, "two", clock).acquire(said.append)
        api.put(LEASE, {**api.stored(LEASE, "emugpu/l"), "spec": {}})
        api.failures = {"replace": [NotThereError("replace leases l: deleted just now")]}
        await one.acquire(said.append)
        assert one.holds

    play(story)
    assert said == []


def test_what_others_write_on_the_lease_does_no_harm() -> None:
    api, clock = FakeApi(), Clocks()
    one = replica(api, "one", clock)

    async def story() -> None:
        await one.acquire(print)
        document = api.stored(LEASE, "emugpu/l")
        api.put(LEASE, {**document, "metadata": {**document["metadata"], "annotations": {"a": "b"}}})
        keeping = asyncio.create_task(one.keep(print))
        while len(api.log) < 3:
            await asyncio.sleep(0.001)
        assert api.stored(LEASE, "emugpu/l")["metadata"]["annotations"] == {"a": "b"}
        keeping.cancel()
        await asyncio.wait([keeping])

    play(story)


def test_a_lease_that_is_gone_is_lost() -> None:
    api, clock = FakeApi(), Clocks()
    one = replica(api, "one", clock)

    async def story() -> None:
        await one.acquire(print)
        api.remove(LEASE, "emugpu/l")
        clock.later(11)
        with pytest.raises(LeadershipLostError):
            await one.keep(print)
        await one.release()  # what isn't held isn't given back
        assert api.objects["leases"] == {}

    play(story)


def test_a_restart_under_the_same_name_goes_on_at_once() -> None:
    api, clock = FakeApi(), Clocks()

    async def story() -> None:
        await replica(api, "one", clock).acquire(print)
        again = replica(api, "one", clock)
        await again.acquire(print)
        assert again.holds
        api.failures = {"replace": [ApiAwayError("away")]}
        await again.release()
        assert not again.holds

    play(story)
