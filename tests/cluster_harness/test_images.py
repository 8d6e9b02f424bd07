"""A tag for a content; the two ways to make an image share their scripts, so the Dockerfile must name what the scripts need."""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster_harness.cache import Cache
from cluster_harness.engine import Engine
from cluster_harness.images import CHECKOUT, OPTIONAL, SPECS, Image, ImageBuilder, saved_image
from cluster_harness.offline import image_assembly
from cluster_harness.offline.image_archive import ImageSpec, write_image
from cluster_harness.offline.image_assembly import PACKAGES
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


@pytest.fixture
def make_builder(checkout: Path, shell, steps) -> Callable[..., ImageBuilder]:  # type: ignore[no-untyped-def]
    def make(*, on_the_spot: bool = False) -> ImageBuilder:
        return ImageBuilder(Cache(checkout.parent / "cache"), shell, steps, on_the_spot, checkout)

    return make


def test_the_product_changes_its_own_tag_only(checkout: Path, make_builder: Callable[..., ImageBuilder]) -> None:
    builder = make_builder()
    before = {name: builder.key(name) for name in SPECS}
    (checkout / "sharing_manager" / "__init__.py").write_text("changed = True\n")
    after = {name: builder.key(name) for name in SPECS}
    assert [name for name in SPECS if before[name] != after[name]] == ["emugpu"]
    (checkout / "smi").mkdir()
    (checkout / "smi" / "go.mod").write_text("module smi\n")
    assert builder.key("emugpu") != after["emugpu"]
    (checkout / "images" / "assemble").write_text("")
    assert all(builder.key(name) != after[name] for name in SPECS)


def test_docker_builds_each_and_saves_it_once(make_builder: Callable[..., ImageBuilder], machine, steps) -> None:  # type: ignore[no-untyped-def]
    builder = make_builder()
    assert builder.missing() == list(SPECS)
    built = builder.build()
    assert {name: image.reference.partition(":")[0] for name, image in built.items()} == {name: name for name in SPECS}
    assert built["emugpu"].archive.read_text().split() == [built["emugpu"].reference, "emugpu:1.2.3"]
    assert machine.images["emugpu:1.2.3"].endswith("images/emugpu/Dockerfile")
    assert steps.titles == [
        "image 1 of 3, emugpu: docker build",
        "image 2 of 3, emugpu-redis: docker build",
        "image 3 of 3, emugpu-base-any: docker build",
    ]
    assert builder.missing() == [] and make_builder().build() == built
    assert machine.operations["docker build"] == 3


def test_no_checkout_says_what_to_do(tmp_path: Path, shell, steps) -> None:  # type: ignore[no-untyped-def]
    builder = ImageBuilder(Cache(tmp_path), shell, steps, True, tmp_path)
    assert builder.missing() == list(SPECS)
    for build in (builder.build, lambda: builder.build_optional("emugpu-scheduler")):
        with pytest.raises(ClusterError, match="give --image"):
            build()


@dataclass
class Assembly:
    """What the scripts of an assembly did: packages that pip installed, by folder, and chroots."""

    installed: dict[str, list[str]] = field(default_factory=dict)
    chroots: int = 0
    compiles: bool = True
    """Whether Python in a chroot can compile modules."""


@pytest.fixture
def assembly(tmp_path: Path, machine, monkeypatch: pytest.MonkeyPatch) -> Assembly:  # type: ignore[no-untyped-def]
    """Scripts that leave directories as the real ones do, without root."""
    rootfs, done = tmp_path / "rootfs", Assembly()
    (rootfs / "tmp").mkdir(parents=True)
    (rootfs / "etc").mkdir()
    monkeypatch.setattr(image_assembly, "debian_rootfs", lambda *_: rootfs)

    def chroot(words: list[str], _stdin: str) -> str:
        if "compileall" in words:
            if done.compiles:
                code = Path(words[1]) / "opt/torch/torch/__pycache__/__init__.cpython-311.pyc"
                code.parent.mkdir(parents=True)
                code.write_text("compiled")
            return ""
        done.chroots += 1
        out = rootfs / "tmp/images/out"
        (out / "usr/local/bin").mkdir(parents=True)
        (out / "base").write_text("debian")
        return ""

    def copy(words: list[str], _stdin: str) -> str:
        shutil.copytree(words[2], words[3])
        return ""

    def finish(words: list[str], _stdin: str) -> str:
        for folder in ("tools", "more"):
            (Path(words[1]) / "opt/emugpu" / folder).mkdir(parents=True, exist_ok=True)
        return ""

    def pip(words: list[str], _stdin: str) -> str:
        target = words.index("--target") + 1
        done.installed.setdefault(Path(words[target]).name, []).extend(words[target + 1 :])
        return ""

    def interpreter(words: list[str], _stdin: str) -> str:
        return "/pip\n" if words[1] == "-c" else "numpy>=1\n" if len(words) > 3 else "a>=1\nb\n"

    scripts = {"chroot": chroot, "cp": copy, "finish": finish, "python": pip}
    machine.programs |= scripts | {
        Path(sys.executable).name: lambda w, i: (pip if "--target" in w else interpreter)(w, i)
    }
    return done


def layers(image: Image) -> int:
    with tarfile.open(image.archive) as archive:
        return sum(name.endswith("layer.tar") for name in archive.getnames())


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.name.endswith((".merged", ".product"))]


def test_assembled_on_the_spot(
    checkout: Path, tmp_path: Path, make_builder: Callable[..., ImageBuilder], assembly: Assembly
) -> None:
    builder = make_builder(on_the_spot=True)
    assert layers(builder.build()["emugpu"]) == 2
    assert assembly.installed == {"site": ["a>=1", "b"]}
    assert not (tmp_path / "rootfs/tmp/images").exists() and leftovers(tmp_path) == []
    before = assembly.chroots
    (checkout / "operators" / "__init__.py").write_text("changed = True\n")
    assert builder.missing() == ["emugpu"]
    builder.build()
    assert assembly.chroots == before and len(assembly.installed["site"]) == 2, "only our packages are copied again"


def test_the_schedulers_image_has_the_products_tag_too(
    checkout: Path, make_builder: Callable[..., ImageBuilder], machine
) -> None:  # type: ignore[no-untyped-def]
    """By that the chart refers to it; it is built only on request."""
    builder = make_builder()
    assert not any("scheduler" in name for name in builder.build())
    image = builder.build_optional("emugpu-scheduler")
    assert machine.images[image.reference].endswith("images/scheduler/Dockerfile")
    assert machine.operations["docker build"] == 4
    names = [image.reference, "emugpu-scheduler:1.2.3", f"emugpu-scheduler:{builder.key('emugpu')}"]
    assert image.archive.read_text().split() == names
    (checkout / "scheduler_sims" / "__init__.py").write_text("changed = True\n")
    assert builder.key("emugpu-scheduler") != image.reference.partition(":")[2]


def test_the_schedulers_image_is_assembled_on_top_of_the_products(
    tmp_path: Path, make_builder: Callable[..., ImageBuilder], assembly: Assembly
) -> None:
    image = make_builder(on_the_spot=True).build_optional("emugpu-scheduler")
    assert layers(image) == 4
    assert assembly.installed["more"] == ["--no-deps", "numpy>=1"]
    assert leftovers(tmp_path) == []


def test_the_image_with_pytorch_is_built_on_request(
    checkout: Path, make_builder: Callable[..., ImageBuilder], machine
) -> None:  # type: ignore[no-untyped-def]
    image = make_builder().build_optional("emugpu-torch")
    assert machine.images[image.reference].endswith("images/torch/Dockerfile")
    assert image.archive.read_text().split() == [image.reference, "emugpu-torch:1.2.3"]
    (checkout / "operators" / "__init__.py").write_text("changed = True\n")
    assert make_builder().build_optional("emugpu-torch") == image, "nothing of ours is in it"


def test_the_image_with_pytorch_is_assembled_of_packages_alone(
    checkout: Path, tmp_path: Path, make_builder: Callable[..., ImageBuilder], assembly: Assembly
) -> None:
    image = make_builder(on_the_spot=True).build_optional("emugpu-torch")
    assert layers(image) == 1
    requirements = checkout / "images/torch/requirements.txt"
    assert assembly.installed == {"torch": ["--no-deps", "--requirement", str(requirements)]}
    with tarfile.open(image.archive) as archive:
        layer = archive.extractfile(next(name for name in archive.getnames() if name.endswith("layer.tar")))
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.read()))) as files:
            code = "opt/torch/torch/__pycache__/__init__.cpython-311.pyc"
            assert {"usr/local/bin/python3", "usr/local/bin/torchrun", code} <= set(files.getnames())
    assert leftovers(tmp_path) == []


def test_pytorch_without_byte_code_is_an_error(
    make_builder: Callable[..., ImageBuilder], assembly: Assembly, tmp_path: Path
) -> None:
    """Otherwise each pod would compile thousands of modules before its program begins."""
    assembly.compiles = False
    with pytest.raises(ClusterError, match="can't compile PyTorch's modules"):
        make_builder(on_the_spot=True).build_optional("emugpu-torch")
    assert leftovers(tmp_path) == []


def test_pytorchs_requirements_are_complete_without_nvidias_packages() -> None:
    text = (IMAGES / "torch" / "requirements.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in lines)
    names = {line.partition("==")[0] for line in lines}
    assert {"torch", "torchvision", "sympy", "jinja2"} <= names
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]
    assert "pip install --no-cache-dir --no-deps -r" in (IMAGES / "torch" / "Dockerfile").read_text(encoding="utf-8")


def test_the_product_has_the_emulated_cuda_libraries(
    checkout: Path, make_builder: Callable[..., ImageBuilder], assembly: Assembly, machine
) -> None:  # type: ignore[no-untyped-def]
    """They are compiled while the image is built; the Dockerfile does it in a stage of its own."""
    source = checkout / "emulator_runtime/cuda/build.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("")
    name, ask = Path(sys.executable).name, machine.programs[Path(sys.executable).name]

    def compile_or_ask(words: list[str], stdin: str) -> str:
        if words[1] == "-c" and "emulator_runtime.cuda.build" in words[2]:
            Path(words[3]).mkdir()
            (Path(words[3]) / "libcuda.so.1").write_text("compiled")
            return ""
        return str(ask(words, stdin))

    machine.programs[name] = compile_or_ask
    image = make_builder(on_the_spot=True).build()["emugpu"]
    with tarfile.open(image.archive) as archive:
        found = []
        for member in archive.getnames():
            if member.endswith("layer.tar"):
                layer = archive.extractfile(member)
                assert layer is not None
                with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.read()))) as files:
                    found += files.getnames()
    assert "opt/emugpu/tools/python/lib/libcuda.so.1" in found
    text = (IMAGES / "emugpu" / "Dockerfile").read_text(encoding="utf-8")
    assert "COPY --from=cuda /lib-cuda /image/opt/emugpu/tools/python/lib\n" in text


def test_an_image_of_the_engine_is_saved_once(tmp_path: Path, shell, machine) -> None:  # type: ignore[no-untyped-def]
    machine.images["name:1"] = "sha256:1"
    engine, cache = Engine(shell, ""), Cache(tmp_path)
    image = saved_image(cache, engine, "name:1")
    assert (image.reference, image.archive.read_text()) == ("name:1", "name:1")
    assert saved_image(cache, engine, "name:1") == image
    assert machine.operations["docker save"] == 1
    machine.images["name:1"] = "sha256:2"
    assert saved_image(cache, engine, "name:1").archive != image.archive


def test_an_archive_has_its_name_inside(tmp_path: Path, shell) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tree").mkdir()
    write_image(tmp_path / "image.tar", "name:tag", [tmp_path / "tree"], ImageSpec())
    image = saved_image(Cache(tmp_path / "cache"), Engine(shell, ""), str(tmp_path / "image.tar"))
    assert image.reference == "name:tag"
    assert image.archive.read_bytes() == (tmp_path / "image.tar").read_bytes()


def test_neither_image_nor_archive(tmp_path: Path, shell) -> None:  # type: ignore[no-untyped-def]
    engine = Engine(shell, "")
    with pytest.raises(ClusterError, match="nope:1: is no file, and the engine has no such image"):
        saved_image(Cache(tmp_path), engine, "nope:1")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ClusterError, match="is no image archive"):
        saved_image(Cache(tmp_path), engine, str(tmp_path / "text"))


def test_the_schedulers_dockerfile_and_the_builder_agree() -> None:
    text = (IMAGES / "scheduler" / "Dockerfile").read_text(encoding="utf-8")
    assert f"ENV PYTHONPATH={OPTIONAL['emugpu-scheduler'].env['PYTHONPATH']}\n" in text
    script, pyproject = IMAGES / "emugpu" / "requirements.py", CHECKOUT / "pyproject.toml"
    names = (IMAGES / "scheduler" / "packages").read_text(encoding="utf-8").split()
    done = subprocess.run([sys.executable, script, pyproject, *names], capture_output=True, text=True, check=True)
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert sorted(done.stdout.splitlines()) == [
        line for line in sorted(extras["scheduler"]) if line.startswith(("numpy", "scipy", "highspy", "rustworkx"))
    ]


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


def test_of_large_packages_only_what_is_used_stays(tmp_path: Path) -> None:
    """plotly's Python and the API classes of the Kubernetes client would double the image. Compiling needs root: not tested."""
    tools, site = tmp_path / "tools", tmp_path / "out/opt/emugpu/site"
    tools.mkdir()
    (tools / "chroot").write_text("#!/bin/sh\n")
    (tools / "chroot").chmod(0o755)
    kept = (
        *("fastapi/applications.py", "kubernetes/aio/client/api_client.py", "kubernetes/client/api/__init__.py"),
        "plotly/package_data/plotly.min.js",
    )
    gone = (
        *(
            "kubernetes/client/api/core_v1_api.py",
            "kubernetes/aio/client/models/v1_pod.py",
            "kubernetes/watch/watch_test.py",
        ),
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
