"""What a scheduler keeps for its successor."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from operators.kube.api import CONFIG_MAP, ApiAwayError
from operators.scheduling.remember.handover import AttainedService, EncodedState, Handover, from_document, to_document
from operators.scheduling.remember.keeper import Keeper
from scheduler_sims.policies.synergy.policy import Round
from tests.support.fake_api import FakeApi

EPOCH_NS = 1_767_225_600_000_000_000
ATTAINED = {"u1": AttainedService(12.5, 3.0, 2), "u2": AttainedService()}
MEMORY = Handover(EPOCH_NS, "synergy", Round(3, {}, {"a": 2}), ATTAINED)


def document_of(handover: Handover) -> tuple[Any, str]:
    return to_document("ns", "n", handover, EncodedState.of(handover))


def kept(handover: Handover, policy: str = "synergy") -> Handover | None:
    document, problem = document_of(handover)
    assert not problem
    return from_document(document, policy, "")


def test_it_comes_back() -> None:
    assert kept(MEMORY) == MEMORY


def test_another_policy_keeps_the_jobs_past_only() -> None:
    found = kept(MEMORY, "las")
    assert found is not None
    assert (found.state, found.attained, found.epoch_ns) == (None, ATTAINED, EPOCH_NS)
    assert found.problem == "the state of policy synergy is discarded: the policy is las now"


def test_a_state_that_is_not_plain_is_reported_and_the_rest_kept() -> None:
    document, problem = document_of(Handover(EPOCH_NS, "own", object(), ATTAINED))
    assert problem.startswith("the state of policy own is lost at a restart: a object is not plain data")
    found = from_document(document, "own", "")
    assert found is not None
    assert (found.state, found.attained) == (None, ATTAINED)


def test_a_state_that_is_too_large_is_reported() -> None:
    huge = [str(number) * 50 for number in range(200_000)]
    document, problem = document_of(Handover(EPOCH_NS, "own", huge))
    assert problem == "the state of policy own is lost at a restart: it is too large for a ConfigMap"
    assert len(document["binaryData"]["memory"]) < 1000


def test_types_that_are_gone_are_reported() -> None:
    document, _ = document_of(MEMORY)
    text = document["binaryData"]["memory"]
    import zlib

    changed = zlib.decompress(base64.b64decode(text)).replace(b":Round", b":Turn")
    document["binaryData"]["memory"] = base64.b64encode(zlib.compress(changed)).decode()
    found = from_document(document, "synergy", "")
    assert found is not None
    assert (found.state, found.attained) == (None, ATTAINED)
    assert "can't be read: scheduler_sims.policies.synergy.policy:Turn is not a type of this policy" in found.problem


@pytest.mark.parametrize("text", ["", "%%%", base64.b64encode(b"text").decode(), "eJyrVkrLz1eyUkpKLFKqBQAdegQ0"])
def test_what_is_no_memory_is_none(text: str) -> None:
    assert from_document({"binaryData": {"memory": text}}, "p", "") is None
    assert from_document({}, "p", "") is None


def test_the_config_map_is_made_once_and_then_changed() -> None:
    async def story() -> None:
        api = FakeApi()
        keeper = Keeper(api, "ns", "n")
        assert await keeper.load("synergy", "") is None
        assert await keeper.save(MEMORY, EncodedState.of(MEMORY)) == ""
        later = Handover(EPOCH_NS, "synergy", Round(4))
        assert await keeper.save(later, EncodedState.of(later)) == ""
        assert [entry[0] for entry in api.log] == ["create", "patch"]
        other = Keeper(api, "ns", "n")  # one that didn't look whether it is there
        assert await other.save(MEMORY, EncodedState.of(MEMORY)) == ""
        assert await Keeper(api, "ns", "n").load("synergy", "") == MEMORY
        api.failures["patch"] = [ApiAwayError("away")]
        with pytest.raises(ApiAwayError):
            await keeper.save(MEMORY, EncodedState.of(MEMORY))
        found: Any = api.stored(CONFIG_MAP, "ns/n")
        assert found["data"] == {"policy": "synergy", "jobs": "2"}

    asyncio.run(story())
