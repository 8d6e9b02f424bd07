"""The admission webhook replaces the admission policy on clusters before Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.cases.conftest import CHART
from e2e.cases.kube import SYSTEM, Kubectl, Object
from e2e.cases.pods import test_alias

pytestmark = pytest.mark.alone

Helm = Callable[..., str]


@pytest.fixture(scope="module")
def webhook(helm: Helm) -> Iterator[None]:
    upgrade = ("upgrade", "emugpu", str(CHART), "--reuse-values", "--wait", "--timeout", "120s")
    helm(*upgrade, "--set", "alias.mode=webhook")
    try:
        yield
    finally:
        helm(*upgrade, "--set", "alias.mode=auto")


@pytest.mark.parametrize("kind", test_alias.KINDS)
def test_every_kind(webhook: None, kubectl: Kubectl, kind: str) -> None:
    test_alias.test_every_kind_takes_the_short_name(kubectl, kind, {"requests": {"emuGPU": "2"}})


@pytest.mark.parametrize("count", ["0.5", "-1"])
def test_a_wrong_count(webhook: None, kubectl: Kubectl, count: str) -> None:
    test_alias.test_a_wrong_count_is_explained(kubectl, "Job", count)


def test_a_contradiction(webhook: None, kubectl: Kubectl) -> None:
    test_alias.test_a_contradiction_is_explained(kubectl, "Job")


def test_an_edited_count(webhook: None, kubectl: Kubectl) -> None:
    test_alias.test_an_edited_count_wins_over_what_stands_there(kubectl)


def test_an_upgrade_keeps_the_certificate(webhook: None, admin: Kubectl, helm: Helm) -> None:
    def certificates() -> list[Object]:
        secrets = admin.within(SYSTEM).list("secrets", "--field-selector", "type=kubernetes.io/tls")
        return [secret["data"] for secret in secrets]

    before = certificates()
    assert before
    helm("upgrade", "emugpu", str(CHART), "--reuse-values", "--wait", "--timeout", "120s")
    assert certificates() == before


def test_kube_system_does_without(webhook: None, admin: Kubectl) -> None:
    """Pods of kube-system must start even if the webhook is down."""
    configurations = admin.list("mutatingwebhookconfigurations", "-l", "app.kubernetes.io/name=emugpu")
    for webhook_ in configurations[0]["webhooks"]:
        excluded = webhook_["namespaceSelector"]["matchExpressions"][0]
        assert excluded["operator"] == "NotIn"
        assert {"kube-system", SYSTEM} <= set(excluded["values"])
