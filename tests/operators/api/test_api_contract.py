"""The paths do what the OpenAPI document says, whatever they are sent: schemathesis makes requests from the document.

All its phases: the document's examples, the borders of every parameter (and what lies beyond them, and other methods), random
requests, and sequences of them; with all its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.engine import Status, events, from_schema

from operators.api.application import application
from operators.api.services import Services

MakeServices = Callable[..., Services]


def found(make_services: MakeServices, examples: int, token: str) -> Iterator[events.ScenarioFinished]:
    """What schemathesis did, one operation and phase after the other. An error of its own is an error here."""
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", application(make_services(stream_s=0.02)))
    schema.config.update(headers={"Authorization": f"Bearer {token}"})
    schema.config.generation.update(max_examples=examples, deterministic=True)
    for event in from_schema(schema).execute():
        assert not isinstance(event, events.FatalError | events.NonFatalError), event
        if isinstance(event, events.ScenarioFinished):
            yield event


def complaints(scenario: events.ScenarioFinished) -> list[str]:
    failed = [
        check for checks in scenario.recorder.checks.values() for check in checks if check.status != Status.SUCCESS
    ]
    told: list[Any] = [check.failure_info for check in failed]
    return [f"{scenario.recorder.label} ({scenario.phase.value}): {each.failure}\n{each.code_sample}" for each in told]


@pytest.mark.timeout(300)
def test_the_document_is_kept(make_services: MakeServices) -> None:
    scenarios = list(found(make_services, 5, "root-token"))
    labels = {scenario.recorder.label for scenario in scenarios}
    assert len(labels) >= 18  # all operations, and sequences
    assert sum(len(scenario.recorder.cases) for scenario in scenarios) > 300
    assert [line for scenario in scenarios for line in complaints(scenario)] == []


@pytest.mark.timeout(120)
def test_who_has_no_good_token_is_told_so_everywhere(make_services: MakeServices) -> None:
    """Every request of every kind: 401, unless it is wrong by itself (422), or not with this method (405)."""
    statuses: dict[int, int] = {}
    for scenario in found(make_services, 2, "wrong"):
        for interaction in scenario.recorder.interactions.values():
            if interaction.response is not None:
                status = interaction.response.status_code
                statuses[status] = statuses.get(status, 0) + 1
    assert set(statuses) <= {401, 404, 405, 422}, statuses
    assert statuses[401] > 100
