"""The product's images from this checkout, as archives in the cache: one tag for one content.

With a registry `docker build` makes them from images/*/Dockerfile; without one the same scripts run in the nodes' Debian.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster_harness import archive, versions
from cluster_harness.archive import ImageSpec, write_image
from cluster_harness.cache import Cache, content_key
from cluster_harness.node_rootfs import debian_rootfs
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
_FOLDERS = {"emugpu": "emugpu", "emugpu-redis": "redis", "emugpu-base-any": "base-any"}


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

    def _image(self, name: str) -> Image:
        key = self.key(name)
        reference = f"{name}:{key}"
        make = self._assemble if self.on_the_spot else self._docker_build
        archive = self.cache.ensure(f"image-{name}", key, lambda path: make(name, reference, path))
        return Image(reference, archive)

    def key(self, name: str) -> str:
        """What the image is made from: its scripts; for the product our packages and tools as well."""
        sources = [self.checkout / "images/assemble", self.checkout / "images" / _FOLDERS[name]]
        if name == "emugpu":
            sources += [self.checkout / package for package in PACKAGES]
            sources += [self.checkout / "pyproject.toml", *self._smi()]
        return content_key(*sources, Path(__file__), Path(archive.__file__), versions.DEBIAN_SUITE)

    def _usual_name(self, name: str) -> str:
        """What the chart and the examples call it; the bare one stands in for an image that knows nothing of emugpu."""
        if name == "emugpu-base-any":
            return "busybox:1.36"
        chart = yaml.safe_load((self.checkout / "charts/emugpu/Chart.yaml").read_text(encoding="utf-8"))
        return f"{name}:{chart['appVersion']}"

    def _smi(self) -> list[Path]:
        return [self.checkout / "smi"] if (self.checkout / "smi/go.mod").exists() else []

    def _docker_build(self, name: str, reference: str, path: Path) -> None:
        folder = self.checkout / "images" / _FOLDERS[name]
        context = self.checkout if name == "emugpu" else self.checkout / "images"
        with self.steps.step(f"docker build {reference}"):
            shell = self.shell.with_env(DOCKER_BUILDKIT="1")
            shell.run("docker", "build", "-f", folder / "Dockerfile", "-t", reference, context, timeout_s=1800)
            shell.run("docker", "tag", reference, self._usual_name(name))
            shell.run("docker", "save", "-o", path, reference, self._usual_name(name))

    def _assemble(self, name: str, reference: str, path: Path) -> None:
        trees, work = [self._base(name)], path.with_name(f"{path.name}.product")
        try:
            if name == "emugpu":
                with self.steps.step("put the product together"):
                    trees.append(self._product(trees[0], work))
            with self.steps.step(f"write {reference}"):
                write_image(path, reference, trees, SPECS[name], also=[self._usual_name(name)])
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

    def _requirements(self) -> list[str]:
        script = self.checkout / "images/emugpu/requirements.py"
        return self.shell.run(sys.executable, script, self.checkout / "pyproject.toml").splitlines()

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

    def _pip(self, root: Path, wanted: list[str]) -> None:
        """Installs wheels with this process's pip, run by the image's Python: see images/emugpu/python."""
        pip = self.shell.run(sys.executable, "-c", "import pip; print(*pip.__path__)").strip()
        options = ("--quiet", "--no-compile", "--only-binary=:all:", "--target", root / "opt/emugpu/site")
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
