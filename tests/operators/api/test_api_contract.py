"""The paths do what the OpenAPI document says, whatever they are sent: schemathesis makes requests from the document."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import ignored_auth

from operators.api.application import application


@pytest.fixture(scope="module")
def contract(make_services: Any) -> Any:
    """An application of its own: schemathesis starts and ends it."""
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", application(make_services(stream_s=0.02)))


schema = schemathesis.pytest.from_fixture("contract")


@schema.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_the_document_is_kept(case: Any) -> None:
    case.call_and_validate(headers={"Authorization": "Bearer root-token"}, excluded_checks=[ignored_auth])


@schema.parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_nobody_gets_nothing(case: Any) -> None:
    response = case.call(headers={"Authorization": "Bearer wrong"})
    assert response.status_code in (401, 405, 422)
    case.validate_response(response, excluded_checks=[ignored_auth])
