"""The product's images without a registry: the scripts of images/*/Dockerfile, run in a Debian root file system."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_harness import versions
from cluster_harness.cache import Cache, content_key
from cluster_harness.offline.image_archive import ImageSpec, write_image
from cluster_harness.offline.node_rootfs import debian_rootfs
from cluster_harness.shell import BUILD_TIMEOUT_S, Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

PACKAGES = ("deviceplugin", "emugpu", "emulator_runtime", "operators", "sharing_manager")
"""Our Python packages in the product's image."""
FOLDERS = {
    "emugpu": "emugpu",
    "emugpu-redis": "redis",
    "emugpu-base-any": "base-any",
    "emugpu-scheduler": "scheduler",
    "emugpu-torch": "torch",
}
"""Each image's folder below images/."""
PRODUCT = ("emugpu", "emugpu-scheduler")
"""Images that contain our Python packages."""
TORCH_PLACE = "opt/torch"
"""Where the image with PyTorch has its Python packages."""
_BUILD_CUDA = (
    "import sys, pathlib; from emulator_runtime.cuda.build import build; build(pathlib.Path(sys.argv[1]), flags=['-s'])"
)
_COMPILING = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
"""Byte code isn't bound to times of files, since layers have none. In one process: there are no semaphores in a chroot."""
_TORCHRUN = "#!/usr/bin/python3.11\nimport sys\n\nfrom torch.distributed.run import main\n\nsys.exit(main())\n"


@dataclass(frozen=True)
class ImageAssembly:
    """Writes images; needs root. All methods raise ClusterError."""

    cache: Cache
    shell: Shell
    steps: Steps
    checkout: Path

    def write(self, name: str, path: Path, spec: ImageSpec, references: Sequence[str], title: str) -> None:
        """Writes the image `name` to `path`; `title` begins the steps' titles."""
        base = "emugpu" if name in PRODUCT else name
        trees, work = [self._base(base, title)], path.with_name(f"{path.name}.product")
        try:
            if name in PRODUCT:
                with self.steps.step(f"{title}: copy and compile our packages"):
                    trees.append(self._product(trees[0], work))
            if name == "emugpu-scheduler":
                trees += [self._policy_packages(trees[0], title), self._simulator(trees[0], work)]
            with self.steps.step(f"{title}: write {references[0]}"):
                write_image(path, references[0], trees, spec, also=references[1:])
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _base(self, name: str, title: str) -> Path:
        """The image's Debian packages and pip's packages, which change with the requirements only."""
        folder = self.checkout / "images" / FOLDERS[name]
        wanted = self._requirements() if name == "emugpu" else []
        scripts = [self.checkout / "images/assemble", folder / "packages"]
        scripts += [folder / "finish", folder / "python"] if name == "emugpu" else []
        scripts += [folder / "requirements.txt"] if name == "emugpu-torch" else []
        compiling = _COMPILING if name == "emugpu-torch" else ()
        key = content_key(*scripts, versions.DEBIAN_SUITE, *wanted, *compiling)

        def make(path: Path) -> None:
            rootfs = debian_rootfs(self.cache, self.shell, self.steps)
            with self.steps.step(f"{title}: install Debian packages"):
                self._in_debian(rootfs, folder / "packages", path)
            if name == "emugpu-redis":
                (path / "data").mkdir(mode=0o777)
                (path / "data").chmod(0o1777)
            if wanted:
                with self.steps.step(f"{title}: install Python packages"):
                    self._pip(path, wanted)
                    self.shell.run(folder / "finish", path, "site")

            if name == "emugpu-torch":
                with self.steps.step(f"{title}: install PyTorch (540 MB to download; 3 to 6 minutes)"):
                    self._torch(path, folder / "requirements.txt")

        return self.cache.ensure(f"base-{name}", key, make)

    def _torch(self, root: Path, requirements: Path) -> None:
        """As in images/torch/Dockerfile."""
        self._pip(root, ["--no-deps", "--requirement", str(requirements)], TORCH_PLACE)
        shutil.rmtree(
            root / TORCH_PLACE / "bin", ignore_errors=True
        )  # its programs would look for this machine's Python
        programs = root / "usr/local/bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name in ("python", "python3"):
            (programs / name).symlink_to("/usr/bin/python3.11")
        (programs / "torchrun").write_text(_TORCHRUN, encoding="ascii")
        (programs / "torchrun").chmod(0o755)
        compiled = self.shell.attempt(
            *("chroot", root, "/usr/bin/python3.11", "-IS", *_COMPILING, "/usr/lib/python3.11", f"/{TORCH_PLACE}"),
            timeout_s=BUILD_TIMEOUT_S,
        )  # some packages contain files that aren't meant for this Python, so the exit status says nothing
        if not any((root / TORCH_PLACE / "torch/__pycache__").glob("__init__.*.pyc")):
            raise ClusterError(f"can't compile PyTorch's modules for the image: {compiled.stderr.strip()[-500:]}")

    def _requirements(self, *names: str) -> list[str]:
        script = self.checkout / "images/emugpu/requirements.py"
        return self.shell.run(sys.executable, script, self.checkout / "pyproject.toml", *names).splitlines()

    def _in_debian(self, rootfs: Path, packages: Path, path: Path) -> None:
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

    def _pip(self, root: Path, wanted: Sequence[str], place: str = "opt/emugpu/site") -> None:
        """Installs wheels with this process's pip, run by the image's Python: see images/emugpu/python."""
        pip = self.shell.run(sys.executable, "-c", "import pip; print(*pip.__path__)").strip()
        options = ("--quiet", "--no-compile", "--only-binary=:all:", "--target", root / place)
        python = self.checkout / "images/emugpu/python"
        self.shell.run(python, root, pip, "install", *options, *wanted, timeout_s=BUILD_TIMEOUT_S)

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
        if (self.checkout / "smi/go.mod").exists():
            self._build_smi(home / "tools/nvidia-smi")
        if (self.checkout / "emulator_runtime/cuda/build.py").exists():
            shutil.copytree(self._cuda_libraries(), home / "tools/python/lib", symlinks=True)
        self.shell.run(self.checkout / "images/emugpu/finish", merged, "packages")
        tree = work / "tree"
        for part in ("opt/emugpu/packages", "opt/emugpu/tools", "usr/local/bin"):
            (tree / part).parent.mkdir(parents=True, exist_ok=True)
            (merged / part).rename(tree / part)
        shutil.rmtree(merged)
        return tree

    def _cuda_libraries(self) -> Path:
        """The emulated CUDA libraries, compiled here; they run with the glibc of any image from 2.31 on."""
        key = content_key(self.checkout / "emulator_runtime/cuda")
        shell = self.shell.with_env(PYTHONPATH=str(self.checkout))
        return self.cache.ensure(
            "cuda-libraries", key, lambda path: shell.run(sys.executable, "-c", _BUILD_CUDA, path, cwd=self.checkout)
        )

    def _build_smi(self, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shell = self.shell.with_env(CGO_ENABLED="0")
        shell.run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, ".", cwd=self.checkout / "smi")

    def _policy_packages(self, base: Path, title: str) -> Path:
        """A tree with the Python packages that policies compute with, in /opt/emugpu/more."""
        names = (self.checkout / "images/scheduler/packages").read_text(encoding="utf-8").split()
        wanted = self._requirements(*names)
        key = content_key(self.checkout / "images/emugpu/finish", base.name, *wanted)

        def make(path: Path) -> None:
            with self.steps.step(f"{title}: install Python packages"):
                self._with_more(base, path, lambda merged: self._pip(merged, ["--no-deps", *wanted], "opt/emugpu/more"))

        return self.cache.ensure("base-emugpu-scheduler", key, make)

    def _simulator(self, base: Path, work: Path) -> Path:
        """A tree with the policies and their loop, in /opt/emugpu/more."""

        def copy(merged: Path) -> None:
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(self.checkout / "scheduler_sims", merged / "opt/emugpu/more/scheduler_sims", ignore=ignore)

        tree = work / "simulator"
        self._with_more(base, tree, copy)
        return tree

    def _with_more(self, base: Path, tree: Path, fill: Callable[[Path], None]) -> None:
        """`tree` gets what `fill` puts into /opt/emugpu/more, compiled by the image's own Python."""
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
