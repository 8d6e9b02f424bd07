"""Builds the environments of `tests/support/torch_releases.py`: `python -m tests.cuda_frameworks.environment [RELEASE ...]`.

Each is a virtual environment in the user's cache with the CUDA wheel of PyTorch and the packages of requirements.txt.
pip installs no dependency: PyTorch's would be 2 GB of NVIDIA's libraries, which programs on emulated GPUs don't use.
Prints the directories.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.torch_releases import RELEASES, TorchRelease

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
COMPLETE = ".complete"
"""The file of a finished environment: a hash of what was installed."""


class InstallError(Exception):
    """pip didn't install everything; what it did install is kept, so that a second attempt goes on from there."""


def ensure(release: TorchRelease) -> Path:
    """The environment of `release`, built if it isn't complete. Raises InstallError and OSError."""
    wanted = _packages(release)
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    complete = release.environment / COMPLETE
    if complete.exists() and complete.read_text(encoding="ascii") == key:
        return release.environment
    _say(f"torch {release.torch}: an environment in {release.environment}; 0.7 to 1.1 GB to download, once")
    if not release.python.exists():
        venv.create(release.environment, with_pip=True)
    command = [str(release.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", *wanted]
    done = subprocess.run(command, stdout=sys.stderr, check=False)  # our standard output is the result alone
    if done.returncode:
        raise InstallError(
            f"torch {release.torch}: pip ended with status {done.returncode}, see above. It needs a package index (PyPI, or "
            "PIP_INDEX_URL) or a directory with the wheels (PIP_FIND_LINKS)."
        )
    complete.write_text(key, encoding="ascii")
    return release.environment


def _packages(release: TorchRelease) -> list[str]:
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    own = [f"torch=={release.torch}", f"torchvision=={release.torchvision}", f"triton=={release.triton}"]
    return [*own, *packages]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """0; 1 if an environment couldn't be built, 2 for a release that isn't in the table."""
    unknown = [name for name in argv if name not in RELEASES]
    if unknown:
        _say(f"error: no release {', '.join(unknown)}; there are {', '.join(RELEASES)}")
        return 2
    try:
        for name in argv or RELEASES:
            print(ensure(RELEASES[name]))
    except (InstallError, OSError) as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
