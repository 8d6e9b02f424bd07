"""A process with many open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

FD_SETSIZE = 1024
"""select(2) takes descriptors below this."""


@pytest.fixture
def crowded() -> Iterator[None]:
    """The next descriptors of this process are beyond what select(2) takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FD_SETSIZE + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < FD_SETSIZE:
        taken.append(os.dup(taken[0]))
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
