"""Whether a registry has kind's node image, how it is pulled, and what an existing cluster refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_harness import versions
from cluster_harness.engine import Engine
from cluster_harness.nodes import providers
from cluster_harness.nodes.providers import (
    ExistingCluster,
    has_stock_image,
    pull_stock_image,
    registry_answers,
)
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.request.flags import plan
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError

STOCK = NodeImages(versions.STOCK_NODE_IMAGE, versions.STOCK_NODE_IMAGE)


def test_the_stock_image_is_pulled_once_with_its_progress(shell, machine, steps) -> None:  # type: ignore[no-untyped-def]
    engine = Engine(shell, "28.0")
    assert not has_stock_image(engine) and not has_stock_image(None)
    for _ in range(2):
        assert pull_stock_image(engine, steps) == STOCK
    assert has_stock_image(engine)
    assert machine.operations["docker pull"] == 1
    (reports,) = steps.progress.values()
    assert [str(report) for report in reports] == ["0 of 1 layers", "0 of 2 layers", "1 of 2 layers"]


@pytest.mark.parametrize("failure", [Done(1, "", "no such host"), ClusterError("didn't end within 20 s")])
def test_a_registry_that_does_not_answer(shell, machine, failure: Done | ClusterError) -> None:  # type: ignore[no-untyped-def]
    assert registry_answers(shell)
    machine.failures["docker manifest"] = failure
    assert not registry_answers(shell)


@pytest.mark.parametrize("reachable", [True, False])
def test_without_a_docker_client_the_registry_is_connected_to(  # type: ignore[no-untyped-def]
    tmp_path: Path, shell, machine, monkeypatch: pytest.MonkeyPatch, *, reachable: bool
) -> None:
    monkeypatch.setattr(providers, "_connects", lambda *_: reachable)
    shell.environ["PATH"] = str(tmp_path)
    assert registry_answers(shell) is reachable
    assert machine.operations.total() == 0


def test_nothing_is_created_on_an_existing_cluster(kubectl, machine, steps) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError, match="nothing to create"):
        ExistingCluster(kubectl).create(plan("x", nodes=1, gpus=1, gpu_type="V100"), steps)
    assert machine.operations.total() == 0


def test_an_existing_cluster_must_answer(kubectl, machine) -> None:  # type: ignore[no-untyped-def]
    machine.failures["kubectl version"] = Done(1, "", "connection refused")
    with pytest.raises(ClusterError, match="connection refused"):
        ExistingCluster(kubectl).exists()
