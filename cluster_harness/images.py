"""The product's images from this checkout, as archives in the cache: one tag for one content.

With a registry `docker build` makes them from images/*/Dockerfile; without one the same scripts run in the nodes' Debian.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.offline import image_archive
from cluster_harness.offline.image_archive import ImageSpec, write_image
from cluster_harness.offline.node_rootfs import debian_rootfs
from cluster_harness.shell import Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

CHECKOUT = Path(__file__).parents[1]
PACKAGES = ("deviceplugin", "emugpu", "emulator_runtime", "operators", "sharing_manager")
_PATH = "/usr/local/bin:/usr/bin:/usr/sbin"
_NEEDS_CHECKOUT = "the product's images are built from a checkout; run this in one, or give --image"

SPECS = {
    "emugpu": ImageSpec(
        entrypoint=["emugpu"],
        env={"PATH": _PATH, "PYTHONPATH": "/opt/emugpu/packages:/opt/emugpu/site", "PYTHONUNBUFFERED": "1"},
    ),
    "emugpu-redis": ImageSpec(entrypoint=["redis-server"], env={"PATH": _PATH}, working_dir="/data"),
    "emugpu-base-any": ImageSpec(command=["sh"], env={"PATH": _PATH}),
}
OPTIONAL = {
    "emugpu-scheduler": ImageSpec(
        entrypoint=["emugpu"],
        env={
            "PATH": _PATH,
            "PYTHONPATH": "/opt/emugpu/packages:/opt/emugpu/site:/opt/emugpu/more",
            "PYTHONUNBUFFERED": "1",
        },
    )
}
"""Images that are made where somebody asks for them (`emugpu cluster load NAME`)."""
_FOLDERS = {"emugpu": "emugpu", "emugpu-redis": "redis", "emugpu-base-any": "base-any", "emugpu-scheduler": "scheduler"}
_PRODUCT = ("emugpu", "emugpu-scheduler")


@dataclass(frozen=True)
class Image:
    """A reference that pods may name, and the archive that brings it onto nodes."""

    reference: str
    archive: Path


@dataclass(frozen=True)
class ImageBuilder:
    """Makes images. `on_the_spot`: from Debian packages by ourselves (root), else with `docker build`."""

    cache: Cache
    shell: Shell
    steps: Steps
    on_the_spot: bool
    checkout: Path = CHECKOUT

    def build(self) -> dict[str, Image]:
        """The images by name; those that are in the cache cost nothing. Raises ClusterError."""
        if not (self.checkout / "images").is_dir():
            raise ClusterError(f"{self.checkout}: {_NEEDS_CHECKOUT}")
        return {name: self._image(name) for name in SPECS}

    def build_optional(self, name: str) -> Image:
        """One of OPTIONAL. Raises ClusterError."""
        if not (self.checkout / "images").is_dir():
            raise ClusterError(f"{self.checkout}: {_NEEDS_CHECKOUT}")
        return self._image(name)

    def _image(self, name: str) -> Image:
        key = self.key(name)
        reference = f"{name}:{key}"
        make = self._assemble if self.on_the_spot else self._docker_build
        archive = self.cache.ensure(f"image-{name}", key, lambda path: make(name, reference, path))
        return Image(reference, archive)

    def key(self, name: str) -> str:
        """What the image is made from: its scripts; for the product our packages and tools as well."""
        sources = [self.checkout / "images/assemble", self.checkout / "images" / _FOLDERS[name]]
        if name in _PRODUCT:
            sources += [self.checkout / package for package in PACKAGES]
            sources += [self.checkout / "pyproject.toml", *self._smi()]
        if name == "emugpu-scheduler":
            sources += [self.checkout / "images/emugpu", self.checkout / "scheduler_sims"]
        return content_key(*sources, Path(__file__), Path(image_archive.__file__), versions.DEBIAN_SUITE)

    def _usual_name(self, name: str) -> str:
        """What the chart and the examples call it; the bare one stands in for an image that knows nothing of emugpu."""
        if name == "emugpu-base-any":
            return "busybox:1.36"
        chart = yaml.safe_load((self.checkout / "charts/emugpu/Chart.yaml").read_text(encoding="utf-8"))
        return f"{name}:{chart['appVersion']}"

    def _names(self, name: str) -> list[str]:
        """Further names: the usual one; and the scheduler's image has the tag of the product's, by which the chart finds it."""
        return [self._usual_name(name), *([f"{name}:{self.key('emugpu')}"] if name == "emugpu-scheduler" else [])]

    def _smi(self) -> list[Path]:
        return [self.checkout / "smi"] if (self.checkout / "smi/go.mod").exists() else []

    def _docker_build(self, name: str, reference: str, path: Path) -> None:
        folder = self.checkout / "images" / _FOLDERS[name]
        context = self.checkout if name in _PRODUCT else self.checkout / "images"
        product = ("--build-arg", f"PRODUCT={self._image('emugpu').reference}") if name == "emugpu-scheduler" else ()
        with self.steps.step(f"docker build {reference}"):
            shell = self.shell.with_env(DOCKER_BUILDKIT="1")
            shell.run(
                "docker", "build", "-f", folder / "Dockerfile", *product, "-t", reference, context, timeout_s=1800
            )
            for other in self._names(name):
                shell.run("docker", "tag", reference, other)
            shell.run("docker", "save", "-o", path, reference, *self._names(name))

    def _assemble(self, name: str, reference: str, path: Path) -> None:
        base = "emugpu" if name in _PRODUCT else name
        trees, work = [self._base(base)], path.with_name(f"{path.name}.product")
        try:
            if name in _PRODUCT:
                with self.steps.step("put the product together"):
                    trees.append(self._product(trees[0], work))
            if name == "emugpu-scheduler":
                trees += [self._more(trees[0]), self._simulator(trees[0], work)]
            with self.steps.step(f"write {reference}"):
                write_image(path, reference, trees, (SPECS | OPTIONAL)[name], also=self._names(name))
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _base(self, name: str) -> Path:
        """The image's Debian part, and pip's packages: what changes with the requirements only."""
        folder = self.checkout / "images" / _FOLDERS[name]
        wanted = self._requirements() if name == "emugpu" else []
        scripts = [self.checkout / "images/assemble", folder / "packages"]
        scripts += [folder / "finish", folder / "python"] if name == "emugpu" else []
        key = content_key(*scripts, versions.DEBIAN_SUITE, *wanted)

        def make(path: Path) -> None:
            with self.steps.step(f"install Debian's part of {name}"):
                self._in_debian(folder / "packages", path)
            if name == "emugpu-redis":
                (path / "data").mkdir(mode=0o777)
                (path / "data").chmod(0o1777)
            if wanted:
                with self.steps.step("install the Python packages of emugpu"):
                    self._pip(path, wanted)
                    self.shell.run(folder / "finish", path, "site")

        return self.cache.ensure(f"base-{name}", key, make)

    def _requirements(self, *names: str) -> list[str]:
        script = self.checkout / "images/emugpu/requirements.py"
        return self.shell.run(sys.executable, script, self.checkout / "pyproject.toml", *names).splitlines()

    def _more(self, base: Path) -> Path:
        """A tree with what policies compute with, in /opt/emugpu/more."""
        names = (self.checkout / "images/scheduler/packages").read_text(encoding="utf-8").split()
        wanted = self._requirements(*names)
        key = content_key(self.checkout / "images/emugpu/finish", base.name, *wanted)

        def make(path: Path) -> None:
            with self.steps.step("install the Python packages of emugpu-scheduler"):
                self._with_more(base, path, lambda merged: self._pip(merged, ["--no-deps", *wanted], "more"))

        return self.cache.ensure("base-emugpu-scheduler", key, make)

    def _simulator(self, base: Path, work: Path) -> Path:
        """A tree with the policies and their loop, beside what they compute with."""

        def copy(merged: Path) -> None:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(self.checkout / "scheduler_sims", merged / "opt/emugpu/more/scheduler_sims", ignore=ignore)

        tree = work / "simulator"
        self._with_more(base, tree, copy)
        return tree

    def _with_more(self, base: Path, tree: Path, fill: Callable[[Path], None]) -> None:
        """`tree` has what `fill` puts into /opt/emugpu/more, compiled by the image's own Python."""
        merged = tree.with_name(f"{tree.name}.merged")
        shutil.rmtree(merged, ignore_errors=True)
        merged.parent.mkdir(parents=True, exist_ok=True)
        self.shell.run("cp", "-al", base, merged)
        try:
            fill(merged)
            self.shell.run(self.checkout / "images/emugpu/finish", merged, "more")
            (tree / "opt/emugpu").mkdir(parents=True)
            (merged / "opt/emugpu/more").rename(tree / "opt/emugpu/more")
        finally:
            shutil.rmtree(merged, ignore_errors=True)

    def _in_debian(self, packages: Path, path: Path) -> None:
        rootfs = debian_rootfs(self.cache, self.shell, self.steps)
        with self.cache.lock("rootfs"):
            work = rootfs / "tmp/images"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            try:
                shutil.copy(self.checkout / "images/assemble", work / "assemble")
                shutil.copy(packages, work / "packages")
                shutil.copy("/etc/resolv.conf", rootfs / "etc/resolv.conf")
                self.shell.run("chroot", rootfs, "sh", *(f"/tmp/images/{n}" for n in ("assemble", "out", "packages")))
                (work / "out").rename(path)
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def _pip(self, root: Path, wanted: list[str], folder: str = "site") -> None:
        """Installs wheels with this process's pip, run by the image's Python: see images/emugpu/python."""
        pip = self.shell.run(sys.executable, "-c", "import pip; print(*pip.__path__)").strip()
        options = ("--quiet", "--no-compile", "--only-binary=:all:", "--target", root / "opt/emugpu" / folder)
        self.shell.run(self.checkout / "images/emugpu/python", root, pip, "install", *options, *wanted)

    def _product(self, base: Path, work: Path) -> Path:
        """A tree with /opt/emugpu/{packages,tools} and /usr/local/bin, compiled by the image's own Python."""
        merged = work / "merged"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.shell.run("cp", "-al", base, merged)
        home = merged / "opt/emugpu"
        for package in PACKAGES:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(self.checkout / package, home / "packages" / package, ignore=ignore)
        if self._smi():
            self._build_smi(home / "tools/nvidia-smi")
        self.shell.run(self.checkout / "images/emugpu/finish", merged, "packages")
        tree = work / "tree"
        for kept in ("opt/emugpu/packages", "opt/emugpu/tools", "usr/local/bin"):
            (tree / kept).parent.mkdir(parents=True, exist_ok=True)
            (merged / kept).rename(tree / kept)
        shutil.rmtree(merged)
        return tree

    def _build_smi(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shell = self.shell.with_env(CGO_ENABLED="0")
        shell.run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, ".", cwd=self.checkout / "smi")
