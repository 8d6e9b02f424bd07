"""Images put into node images: once for each content, without leftovers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_harness.engine import Engine
from cluster_harness.offline.image_commit import (
    LOADED,
    NodeImages,
    commit_with_archives,
    remove_other_images,
    with_product,
)
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError

BASE = NodeImages("emugpu-node:1", "emugpu-node:1-worker")


def test_the_product_is_put_into_both_images_once(tmp_path: Path, shell, machine, steps) -> None:  # type: ignore[no-untyped-def]
    engine = Engine(shell, "28.0")
    machine.images[f"{LOADED}:old"] = ""
    first = with_product(BASE, [tmp_path / "image-emugpu" / "abc"], engine, steps)
    assert first.control_plane.startswith(f"{LOADED}:1-") and first.worker.startswith(f"{LOADED}:1-worker-")
    assert machine.images == dict.fromkeys((first.worker, first.control_plane), "abc"), "the old one is removed"
    second = with_product(BASE, [tmp_path / "image-emugpu" / "def"], engine, steps)
    assert second.worker != first.worker
    commits = machine.operations["docker commit"]
    assert with_product(BASE, [tmp_path / "image-emugpu" / "def"], engine, steps) == second
    assert machine.operations["docker commit"] == commits
    assert str(steps.progress["put the product into the node images"][-1]) == "1 of 1 images"
    assert machine.containers == set()


@pytest.mark.parametrize("failure", [Done(1, "", "ctr: no space left on device"), KeyboardInterrupt()])
def test_a_container_that_fails_to_import_is_removed(  # type: ignore[no-untyped-def]
    tmp_path: Path, shell, machine, failure: Done | BaseException
) -> None:
    machine.containers.add("a-b")
    machine.failures["docker run"] = failure
    with pytest.raises((ClusterError, KeyboardInterrupt)):
        commit_with_archives("a:b", "base", [tmp_path / "x"], Engine(shell, ""), lambda _progress: None)
    assert machine.containers == set() and machine.images == {}


def test_wanted_images_stay(shell, machine) -> None:  # type: ignore[no-untyped-def]
    machine.images = {"r:1": "", "r:2": "", "other:1": ""}
    remove_other_images(Engine(shell, ""), "r", keep=("r:2",))
    assert set(machine.images) == {"r:2", "other:1"}
