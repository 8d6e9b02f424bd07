"""The cluster that the cases run on: the one called `e2e` (or EMUGPU_E2E_CLUSTER), which `make kind-up` brings up.

A case gets a namespace of its own, which is gone when the case is done.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cases.kube import RESOURCE, SYSTEM, Kubectl, Node, eventually
from e2e.cases.lab import Lab
from e2e.cases.ledger import Ledger
from emulator_runtime.domain.errors import ClusterError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kubernetes"
CHART = ROOT / "charts" / "emugpu"
CLUSTER = os.environ.get("EMUGPU_E2E_CLUSTER", "e2e")
GPUS_PER_NODE = 8
QUICK = ("--set", "prepare.enabled=false", "--wait", "--timeout", "120s")
"""For upgrades that only change pools: skips the hook that applies the custom resource definitions."""


@pytest.fixture(scope="session")
def lab() -> Lab:
    try:
        return Lab(CLUSTER)
    except ClusterError as error:
        pytest.exit(f"{error}: make kind-up CLUSTER={CLUSTER}", returncode=2)


@pytest.fixture(scope="session")
def admin(lab: Lab) -> Kubectl:
    """kubectl in the namespace `default`, outside of the cases' namespaces."""
    return lab.kubectl


@pytest.fixture(scope="session")
def workers(lab: Lab) -> list[Node]:
    return lab.workers()


@pytest.fixture
def kubectl(admin: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a fresh namespace."""
    name = f"case-{uuid.uuid4().hex[:8]}"
    admin("create", "namespace", name)
    within = admin.within(name)
    eventually("default service account", lambda: within.exists("serviceaccount", "default"))
    try:
        yield within
    finally:
        within("delete", "all", "--all", "--wait=false")
        within("delete", "pods", "--all", "--force", "--grace-period=0", "--timeout=60s")
        admin("delete", "namespace", name, "--wait=false")


@pytest.fixture
def ledger(admin: Kubectl) -> Ledger:
    return Ledger(admin)


def allocatable(admin: Kubectl, node: str, resource: str = RESOURCE) -> int:
    return int(admin.get("node", node)["status"]["allocatable"].get(resource, 0))


@pytest.fixture(autouse=True)
def all_devices_there(request: pytest.FixtureRequest) -> None:
    """Before each case: wait until all devices are allocatable, since the previous case may have changed the nodes."""
    admin: Kubectl = request.getfixturevalue("admin")
    workers: list[Node] = request.getfixturevalue("workers")
    for worker in workers:
        eventually(
            f"{GPUS_PER_NODE} devices on {worker.name}",
            lambda worker=worker: allocatable(admin, worker.name) == GPUS_PER_NODE,
            within_s=60,
        )


@pytest.fixture(scope="session")
def helm(lab: Lab) -> Callable[..., str]:
    """Runs helm on the release `emugpu`; the values of the cluster's own installation are kept."""

    def run(*args: str, check: bool = True) -> str:
        command = [str(lab.programs.helm), "--namespace", SYSTEM, *args]
        environ = os.environ | {"KUBECONFIG": str(lab.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, check=False)
        if check:
            assert done.returncode == 0, f"helm {' '.join(args)}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture
def pools(helm: Callable[..., str], tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Upgrades the release to the pools of a values file; they stay until the case ends."""
    before = tmp_path / "values-before.yaml"  # a name that no case uses
    before.write_text(helm("get", "values", "emugpu", "-o", "yaml"), encoding="utf-8")

    def use(values: Path) -> None:
        helm("upgrade", "emugpu", str(CHART), "--reuse-values", "-f", str(values), *QUICK)

    try:
        yield use
    finally:
        helm("upgrade", "emugpu", str(CHART), "--reset-values", "-f", str(before), *QUICK)
