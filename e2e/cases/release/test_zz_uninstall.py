"""The last case (pytest runs files by name): an uninstall leaves nothing on nodes or in the API except what NOTES names.

Afterwards the release is installed again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cases.conftest import CHART, allocatable
from e2e.cases.kube import SYSTEM, Kubectl, Node, eventually

pytestmark = pytest.mark.alone

KINDS = (
    "daemonsets,deployments,statefulsets,jobs,pods,services,configmaps,secrets,serviceaccounts,networkpolicies,"
    "poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings,mutatingadmissionpolicies,"
    "mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingwebhookconfigurations,priorityclasses"
)


def ours(admin: Kubectl) -> list[str]:
    found = admin.within(SYSTEM)("get", KINDS, "-o", "name", "-l", "app.kubernetes.io/part-of=emugpu")
    return [line for line in found.splitlines() if line]


def test_nothing_is_left(admin: Kubectl, helm: Callable[..., str], workers: list[Node], tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(helm("get", "values", "emugpu", "-o", "yaml"), encoding="utf-8")
    assert ours(admin), "the label that this case looks for is on nothing"
    notes = helm("get", "notes", "emugpu")
    try:
        helm("uninstall", "emugpu", "--wait", "--timeout", "180s")
        eventually("nothing of ours is in the API", lambda: not ours(admin), within_s=60)
        assert not admin.list("emugpupools")
        for node in admin.list("nodes"):
            metadata = node["metadata"]
            left = [n for n in (*metadata["labels"], *metadata["annotations"]) if n.startswith("emugpu.dev/")]
            assert not left, f"{metadata['name']}: {left}"
        for worker in workers:
            assert worker.sh("ls -A /var/lib/emugpu 2>/dev/null || true").split() == []
            assert "emugpu" not in worker.sh("ls /var/lib/kubelet/device-plugins")
        for kind in ("emugpupools", "emujobs", "schedulingexperiments"):
            assert f"{kind}.emugpu.dev" in notes  # the definition stays; NOTES says so
    finally:
        helm("upgrade", "--install", "emugpu", str(CHART), "-f", str(values), "--wait", "--timeout", "180s")
        for worker in workers:
            eventually("the devices are back", lambda w=worker: allocatable(admin, w.name) == 8)
