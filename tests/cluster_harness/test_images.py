"""A tag for a content; the two ways to make an image share their scripts, so the Dockerfile must name what the scripts need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from cluster_harness import images as module
from cluster_harness.cache import Cache
from cluster_harness.images import CHECKOUT, OPTIONAL, PACKAGES, SPECS, ImageBuilder
from emulator_runtime.domain.errors import ClusterError

IMAGES = CHECKOUT / "images"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one file in each package."""
    root = tmp_path / "checkout"
    (root / "charts/emugpu").mkdir(parents=True)
    (root / "charts/emugpu/Chart.yaml").write_text("appVersion: 1.2.3\n")
    shutil.copytree(IMAGES, root / "images")
    for package in (*PACKAGES, "scheduler_sims"):
        (root / package).mkdir()
        (root / package / "__init__.py").write_text("")
    shutil.copy(CHECKOUT / "pyproject.toml", root)
    return root


def builder(checkout: Path, shell, steps, *, on_the_spot: bool = False) -> ImageBuilder:  # type: ignore[no-untyped-def]
    return ImageBuilder(Cache(checkout.parent / "cache"), shell, steps, on_the_spot, checkout)


def test_the_product_changes_its_own_tag_only(checkout: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    found = builder(checkout, make_shell(), steps)
    before = {name: found.key(name) for name in SPECS}
    (checkout / "sharing_manager" / "__init__.py").write_text("changed = True\n")
    after = {name: found.key(name) for name in SPECS}
    assert [name for name in SPECS if before[name] != after[name]] == ["emugpu"]
    (checkout / "smi").mkdir()
    (checkout / "smi" / "go.mod").write_text("module smi\n")
    assert found.key("emugpu") != after["emugpu"]
    (checkout / "images" / "assemble").write_text("")
    assert all(found.key(name) != after[name] for name in SPECS)


def test_docker_builds_each_and_saves_it_once(checkout: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    def save(words: list[str]) -> str:
        Path(words[3]).write_text("archive")
        return ""

    shell = make_shell({"docker save": save})
    found = builder(checkout, shell, steps).build()
    assert {name: image.reference.partition(":")[0] for name, image in found.items()} == {name: name for name in SPECS}
    assert shell.count("docker build") == shell.count("docker save") == 3
    assert shell.environ["DOCKER_BUILDKIT"] == "1"
    assert builder(checkout, shell, steps).build() == found
    assert shell.count("docker build") == 3
    assert f"docker tag {found['emugpu'].reference} emugpu:1.2.3" in shell.ran


def test_no_checkout_says_what_to_do(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError, match="give --image"):
        ImageBuilder(Cache(tmp_path), make_shell(), steps, True, tmp_path).build()


def test_assembled_on_the_spot(
    checkout: Path,
    tmp_path: Path,
    make_shell,
    steps,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    rootfs = tmp_path / "rootfs"
    (rootfs / "tmp").mkdir(parents=True)
    (rootfs / "etc").mkdir()
    monkeypatch.setattr(module, "debian_rootfs", lambda *_: rootfs)

    def assemble(words: list[str]) -> str:
        out = rootfs / "tmp/images/out"
        (out / "usr/local/bin").mkdir(parents=True)
        (out / "base").write_text("debian")
        return ""

    def copy(words: list[str]) -> str:
        shutil.copytree(words[2], words[3])
        return ""

    def finish(words: list[str]) -> str:
        (Path(words[1]) / "opt/emugpu/tools").mkdir(parents=True, exist_ok=True)
        return ""

    shell = make_shell(
        {"chroot": assemble, "cp -al": copy, "finish": finish, "requirements.py": "a>=1\nb\n", "import pip": "/pip\n"}
    )
    found = builder(checkout, shell, steps, on_the_spot=True).build()
    with tarfile.open(found["emugpu"].archive) as archive:
        assert len([m for m in archive.getnames() if m.endswith("layer.tar")]) == 2
    assert [line for line in shell.ran if "--target" in line and line.endswith("a>=1 b")]
    assert not (rootfs / "tmp/images").exists()
    assert not list((tmp_path / "cache/image-emugpu").glob("*product*"))
    before = len(shell.ran)
    (checkout / "operators" / "__init__.py").write_text("changed = True\n")
    builder(checkout, shell, steps, on_the_spot=True).build()
    assert not any("chroot" in line or "--target" in line for line in shell.ran[before:])  # only our packages again


def test_the_schedulers_image_has_the_products_tag_too(checkout: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    """By that the chart finds it; it is made where it is asked for only."""

    def save(words: list[str]) -> str:
        Path(words[3]).write_text("archive")
        return ""

    shell = make_shell({"docker save": save})
    found = builder(checkout, shell, steps)
    assert not any("scheduler" in name for name in found.build())
    before = shell.count("docker build")
    image = found.build_optional("emugpu-scheduler")
    (line,) = [line for line in shell.ran if "docker build" in line and "images/scheduler/Dockerfile" in line]
    assert f"--build-arg PRODUCT=emugpu:{found.key('emugpu')}" in line
    assert shell.count("docker build") == before + 1
    for other in ("1.2.3", found.key("emugpu")):
        assert f"docker tag {image.reference} emugpu-scheduler:{other}" in shell.ran
    (checkout / "scheduler_sims" / "__init__.py").write_text("changed = True\n")
    assert found.key("emugpu-scheduler") != image.reference.partition(":")[2]


def test_the_schedulers_image_is_assembled_on_top_of_the_products(
    checkout: Path,
    tmp_path: Path,
    make_shell,
    steps,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    rootfs = tmp_path / "rootfs"
    for folder in ("tmp", "etc"):
        (rootfs / folder).mkdir(parents=True)
    monkeypatch.setattr(module, "debian_rootfs", lambda *_: rootfs)

    def assemble(words: list[str]) -> str:
        (rootfs / "tmp/images/out/usr/local/bin").mkdir(parents=True)
        return ""

    def copy(words: list[str]) -> str:
        shutil.copytree(words[2], words[3])
        return ""

    def finish(words: list[str]) -> str:
        for folder in ("tools", "more"):
            (Path(words[1]) / "opt/emugpu" / folder).mkdir(parents=True, exist_ok=True)
        return ""

    shell = make_shell(
        {"chroot": assemble, "cp -al": copy, "finish": finish, "requirements.py": "numpy>=1\n", "import pip": "/pip\n"}
    )
    image = builder(checkout, shell, steps, on_the_spot=True).build_optional("emugpu-scheduler")
    with tarfile.open(image.archive) as archive:
        assert len([m for m in archive.getnames() if m.endswith("layer.tar")]) == 4
    assert [line for line in shell.ran if "opt/emugpu/more" in line and line.endswith("--no-deps numpy>=1")]
    left = [path.name for path in tmp_path.rglob("*") if path.name.endswith((".merged", ".product"))]
    assert left == []


def test_no_checkout_makes_no_schedulers_image(tmp_path: Path, make_shell, steps) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClusterError, match="give --image"):
        ImageBuilder(Cache(tmp_path), make_shell(), steps, True, tmp_path).build_optional("emugpu-scheduler")


def test_the_schedulers_dockerfile_and_the_builder_agree() -> None:
    text = (IMAGES / "scheduler" / "Dockerfile").read_text(encoding="utf-8")
    assert f"ENV PYTHONPATH={OPTIONAL['emugpu-scheduler'].env['PYTHONPATH']}\n" in text
    script, pyproject = IMAGES / "emugpu" / "requirements.py", CHECKOUT / "pyproject.toml"
    names = (IMAGES / "scheduler" / "packages").read_text(encoding="utf-8").split()
    done = subprocess.run([sys.executable, script, pyproject, *names], capture_output=True, text=True, check=True)
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert done.stdout.splitlines() == [line for line in extras["scheduler"] if line.startswith(("numpy", "scipy"))]


def test_the_dockerfile_and_the_builder_agree() -> None:
    text = (IMAGES / "emugpu" / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"^COPY (\w+) /image/opt/emugpu/packages/\w+$", text, re.MULTILINE)) == set(PACKAGES)
    for name, value in SPECS["emugpu"].env.items():
        assert f"{name}={value}" in text
    assert f'ENTRYPOINT ["{SPECS["emugpu"].entrypoint[0]}"]' in text
    ignore = (IMAGES / "emugpu" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{package}" for package in PACKAGES} <= set(ignore)


def test_the_image_installs_the_extras_of_its_programs() -> None:
    script, pyproject = IMAGES / "emugpu" / "requirements.py", CHECKOUT / "pyproject.toml"
    done = subprocess.run([sys.executable, script, pyproject], capture_output=True, text=True, check=True)
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert done.stdout.splitlines() == sorted({*extras["node"], *extras["operator"]})


@pytest.mark.parametrize("script", ["assemble", "emugpu/finish", "emugpu/python"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    assert os.access(IMAGES / script, os.X_OK)
    subprocess.run(["sh", "-n", IMAGES / script], check=True)


def test_finish_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    done = subprocess.run([IMAGES / "emugpu/finish", tmp_path, "nothing"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "finish: unknown part 'nothing'\n")


def test_of_plotly_only_its_javascript_stays(tmp_path: Path) -> None:
    """Its Python is as large as half of the image; compiling in the image needs root, and is not what is looked at here."""
    tools, site = tmp_path / "tools", tmp_path / "out/opt/emugpu/site"
    tools.mkdir()
    (tools / "chroot").write_text("#!/bin/sh\n")
    (tools / "chroot").chmod(0o755)
    kept = ("fastapi/applications.py", "plotly/package_data/plotly.min.js")
    gone = (
        *("plotly/__init__.py", "plotly/graph_objs/bar/_bar.py", "plotly/package_data/widgetbundle.js"),
        *("_plotly_utils/colors/carto.py", "narwhals/dtypes.py", "share/jupyter/x.js", "fastapi/tests/test_it.py"),
    )
    for name in (*kept, *gone):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("x")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run([IMAGES / "emugpu/finish", tmp_path / "out", "site"], check=True, env=environment)
    assert sorted(str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()) == sorted(kept)
    assert not (site / "plotly/graph_objs").exists()
