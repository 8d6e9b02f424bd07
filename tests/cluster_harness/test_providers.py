"""Which node image is taken, and which image a name or a file stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_harness import providers, versions
from cluster_harness.cache import Cache
from cluster_harness.engine import Engine
from cluster_harness.kubectl import Kubectl
from cluster_harness.offline.image_archive import ImageSpec, write_image
from cluster_harness.offline.image_commit import (
    LOADED,
    NodeImages,
    commit_with_archives,
    remove_other_images,
    with_product,
)
from cluster_harness.providers import ExistingWay, obtain_node_images, saved_image
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError

STOCK = NodeImages(versions.STOCK_NODE_IMAGE, versions.STOCK_NODE_IMAGE)
OURS = NodeImages("emugpu-node:1", "emugpu-node:1-worker")
NO = Done(1, "", "no")


def obtain(answers, make_shell, steps, tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(providers, "node_images", lambda *_: OURS)
    shell = make_shell(answers)
    return obtain_node_images(Cache(tmp_path), Engine(shell, ""), shell, steps), shell


def test_the_stock_image_that_is_there(make_shell, steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    found, shell = obtain({}, make_shell, steps, tmp_path, monkeypatch)
    assert found == (STOCK, False)
    assert shell.count("pull") == 0


def test_a_registry_that_answers(make_shell, steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    found, shell = obtain({"image inspect": NO}, make_shell, steps, tmp_path, monkeypatch)
    assert found == (STOCK, False)
    assert shell.count("docker pull") == 1


def no_answer(_words: list[str]) -> Done:
    raise ClusterError("didn't end within 20 s")


@pytest.mark.parametrize("registry", [NO, no_answer])
def test_no_registry_is_said(registry, make_shell, steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    answers = {"image inspect": NO, "manifest inspect": registry}
    found, shell = obtain(answers, make_shell, steps, tmp_path, monkeypatch)
    assert found == (OURS, True)
    assert shell.count("docker pull") == 0
    assert steps.said == [
        f"no registry gives {versions.STOCK_NODE_IMAGE.partition('@')[0]}: the node image is built here"
    ]


def test_an_image_of_the_engine_is_saved_once(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    def save(words: list[str]) -> str:
        Path(words[3]).write_text("archive")
        return ""

    shell = make_shell({"image inspect": "sha256:1\n", "docker save": save})
    engine, cache = Engine(shell, ""), Cache(tmp_path)
    image = saved_image(cache, engine, "name:1")
    assert (image.reference, image.archive.read_text()) == ("name:1", "archive")
    assert saved_image(cache, engine, "name:1") == image
    assert shell.count("docker save") == 1
    shell.answers["image inspect"] = "sha256:2\n"
    assert saved_image(cache, engine, "name:1").archive != image.archive


def test_an_archive_knows_its_name(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tree").mkdir()
    write_image(tmp_path / "image.tar", "name:tag", [tmp_path / "tree"], ImageSpec())
    image = saved_image(Cache(tmp_path / "cache"), Engine(make_shell(), ""), str(tmp_path / "image.tar"))
    assert image.reference == "name:tag"
    assert image.archive.read_bytes() == (tmp_path / "image.tar").read_bytes()


def test_neither_image_nor_archive(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    engine = Engine(make_shell({"image inspect": NO}), "")
    with pytest.raises(ClusterError, match="nope:1: is no file, and the engine has no such image"):
        saved_image(Cache(tmp_path), engine, "nope:1")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ClusterError, match="is no image archive"):
        saved_image(Cache(tmp_path), engine, str(tmp_path / "text"))


def test_the_product_is_put_into_both_images_once(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"image inspect": NO, "docker images": f"{LOADED}:old\n"})
    loaded = with_product(OURS, [tmp_path / "image-emugpu" / "abc"], Engine(shell, ""), steps)
    assert loaded.control_plane.startswith(f"{LOADED}:1-")
    assert loaded.worker.startswith(f"{LOADED}:1-worker-")
    assert shell.count("docker commit") == 2
    assert shell.count(f"docker rmi {LOADED}:old") == 1
    again = with_product(OURS, [tmp_path / "image-emugpu" / "def"], Engine(shell, ""), steps)
    assert again.worker != loaded.worker
    shell.answers = {}
    shell.ran.clear()
    assert with_product(OURS, [tmp_path / "image-emugpu" / "abc"], Engine(shell, ""), steps) == loaded
    assert shell.count("docker commit") == 0


def test_a_container_that_fails_to_import_is_removed(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"docker run": Done(1, "", "ctr: no space left on device")})
    with pytest.raises(ClusterError, match="no space left"):
        commit_with_archives("a:b", "base", [tmp_path / "x"], Engine(shell, ""))
    assert shell.ran[-1] == "docker rm -f a-b"
    assert shell.count("commit") == 0


def test_wanted_images_stay(make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"docker images": "r:1\nr:2\n"})
    remove_other_images(Engine(shell, ""), "r", keep=("r:2",))
    assert [line for line in shell.ran if "rmi" in line] == ["docker rmi r:1"]


def test_nothing_is_created_on_an_existing_cluster(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    from cluster_harness.request.flags import plan

    way = ExistingWay(Kubectl(make_shell(), Path("kubectl"), tmp_path / "k"))
    with pytest.raises(ClusterError, match="nothing to create"):
        way.create(plan("x", nodes=1, gpus=1, gpu_type="V100"), steps)


def test_an_existing_cluster_must_answer(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"version": Done(1, "", "connection refused")})
    with pytest.raises(ClusterError, match="connection refused"):
        ExistingWay(Kubectl(shell, Path("kubectl"), tmp_path / "k")).is_there()
