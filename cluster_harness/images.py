"""The product's images from this checkout, as archives in the cache: one tag for one content.

With a registry `docker build` makes them from images/*/Dockerfile; without one the same scripts run in a Debian root file system.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.engine import Engine
from cluster_harness.offline import image_archive, image_assembly
from cluster_harness.offline.image_archive import ImageSpec, reference_of
from cluster_harness.offline.image_assembly import FOLDERS, PACKAGES, PRODUCT, TORCH_PLACE, ImageAssembly
from cluster_harness.shell import BUILD_TIMEOUT_S, Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

CHECKOUT = Path(__file__).parents[1]
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
    ),
    "emugpu-torch": ImageSpec(
        command=["python3"], env={"PATH": _PATH, "PYTHONPATH": f"/{TORCH_PLACE}", "PYTHONUNBUFFERED": "1"}
    ),
}
"""Images that only `emugpu cluster load NAME` builds."""


@dataclass(frozen=True)
class Image:
    """A reference that pods may name, and the archive that brings it onto nodes."""

    reference: str
    archive: Path


@dataclass(frozen=True)
class ImageBuilder:
    """Builds images. `on_the_spot`: from Debian packages with our own scripts (root), else with `docker build`."""

    cache: Cache
    shell: Shell
    steps: Steps
    on_the_spot: bool
    checkout: Path = CHECKOUT

    def missing(self, names: Sequence[str] = tuple(SPECS)) -> list[str]:
        """The images of these that the cache lacks; all of them outside of a checkout."""
        if not (self.checkout / "images").is_dir():
            return list(names)
        return [name for name in names if not self.cache.has(f"image-{name}", self.key(name))]

    def build(self) -> dict[str, Image]:
        """The images by name; only those that the cache lacks are built. Raises ClusterError."""
        self._check_checkout()
        missing = self.missing()
        return {name: self._image(name, _numbered(name, missing)) for name in SPECS}

    def build_optional(self, name: str) -> Image:
        """Builds an image of OPTIONAL. Raises ClusterError."""
        self._check_checkout()
        return self._image(name, name)

    def _check_checkout(self) -> None:
        if not (self.checkout / "images").is_dir():
            raise ClusterError(f"{self.checkout}: {_NEEDS_CHECKOUT}")

    def _image(self, name: str, title: str) -> Image:
        """Builds the images; `title` is the prefix of the steps' titles."""
        key = self.key(name)
        reference = f"{name}:{key}"

        def make(path: Path) -> None:
            if self.on_the_spot:
                assembly = ImageAssembly(self.cache, self.shell, self.steps, self.checkout)
                assembly.write(name, path, (SPECS | OPTIONAL)[name], [reference, *self._names(name)], title)
            else:
                self._docker_build(name, reference, path, title)

        return Image(reference, self.cache.ensure(f"image-{name}", key, make))

    def key(self, name: str) -> str:
        """A hash of what the image is built from: its scripts; for the product our packages and tools as well."""
        sources = [self.checkout / "images/assemble", self.checkout / "images" / FOLDERS[name]]
        if name in PRODUCT:
            sources += [self.checkout / package for package in PACKAGES]
            sources += [self.checkout / "pyproject.toml", *self._smi()]
        if name == "emugpu-scheduler":
            sources += [self.checkout / "images/emugpu", self.checkout / "scheduler_sims"]
        modules = [Path(module) for module in (__file__, image_archive.__file__, image_assembly.__file__)]
        return content_key(*sources, *modules, versions.DEBIAN_SUITE)

    def _smi(self) -> list[Path]:
        return [self.checkout / "smi"] if (self.checkout / "smi/go.mod").exists() else []

    def _usual_name(self, name: str) -> str:
        """The name in the chart and the examples; `emugpu-base-any` plays an image that has nothing of emugpu."""
        if name == "emugpu-base-any":
            return "busybox:1.36"
        chart = yaml.safe_load((self.checkout / "charts/emugpu/Chart.yaml").read_text(encoding="utf-8"))
        return f"{name}:{chart['appVersion']}"

    def _names(self, name: str) -> list[str]:
        """Further names: the usual one; the scheduler's image also has the product's tag, by which the chart refers to it."""
        return [self._usual_name(name), *([f"{name}:{self.key('emugpu')}"] if name == "emugpu-scheduler" else [])]

    def _docker_build(self, name: str, reference: str, path: Path, title: str) -> None:
        folder = self.checkout / "images" / FOLDERS[name]
        context = self.checkout if name in PRODUCT else self.checkout / "images"
        scheduler = name == "emugpu-scheduler"
        product = ("--build-arg", f"PRODUCT={self._image('emugpu', 'emugpu').reference}") if scheduler else ()
        build = ("docker", "build", "-f", folder / "Dockerfile", *product, "-t", reference, context)
        with self.steps.step(f"{title}: docker build"):
            self.shell.with_env(DOCKER_BUILDKIT="1").run(*build, timeout_s=BUILD_TIMEOUT_S)
            for other in self._names(name):
                self.shell.run("docker", "tag", reference, other)
            self.shell.run("docker", "save", "-o", path, reference, *self._names(name))


def _numbered(name: str, missing: Sequence[str]) -> str:
    """The title of a step, such as `image 2 of 3, emugpu-redis`."""
    return f"image {missing.index(name) + 1} of {len(missing)}, {name}" if name in missing else name


def saved_image(cache: Cache, engine: Engine, given: str) -> Image:
    """An image of the engine, or the archive at a path, ready to be loaded. Raises ClusterError for neither."""
    path = Path(given)
    if path.is_file():
        reference = reference_of(path)
        return Image(reference, cache.ensure("saved-images", content_key(path), lambda to: shutil.copyfile(path, to)))
    done = engine.shell.attempt("docker", "image", "inspect", "-f", "{{.Id}}", given)
    if not done.ok:
        raise ClusterError(f"{given}: is no file, and the engine has no such image (`docker images` lists them)")
    key = content_key(given, done.stdout.strip())
    archive = cache.ensure("saved-images", key, lambda to: engine.shell.run("docker", "save", "-o", to, given))
    return Image(given, archive)
