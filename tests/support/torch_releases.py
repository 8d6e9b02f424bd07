"""The releases of PyTorch that emulated GPUs are tested with, each in an environment of its own in the user's cache.

`make frameworks` builds the environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_harness.cache import default_root


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """Versions that belong together. Triton is what `torch.compile` makes kernels with."""

    torch: str
    torchvision: str
    triton: str

    @property
    def environment(self) -> Path:
        return default_root() / "torch" / self.torch

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"


RELEASES = {
    "2.15.0": TorchRelease("2.15.0", torchvision="0.29.2", triton="3.9.0"),  # CUDA 13
    "2.10.0": TorchRelease("2.10.0", torchvision="0.25.0", triton="3.6.0"),  # the last one whose default is CUDA 12
}

NEWEST = pytest.mark.parametrize("release", [next(iter(RELEASES))], indirect=True)
"""For tests to which one release is enough: `test_programs.py` runs programs with both."""


def installed(release: str) -> TorchRelease:
    """The release, if its environment is there; otherwise the test is skipped."""
    found = RELEASES[release]
    if not found.python.exists():
        pytest.skip(f"torch {release} isn't installed in {found.environment}: make frameworks")
    return found
