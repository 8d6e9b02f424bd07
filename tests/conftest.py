"""What all tests share: bounds on host time for a busy machine, how a run is spread over processes, what may not be skipped.

- With `--dist loadgroup` (`make test`) a file's tests stay in one process, and all tests that need a real API server share
  one process and so one server. The slowest groups come first.
- A test marked `alone` measures time: while it runs, no other process of this run tests anything.
- Skipped tests are counted by reason at the end of a run. In CI (CI=true) a skip of a test in MUST_RUN is a failure.
"""

from __future__ import annotations

import fcntl
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import Phase, settings

MUST_RUN = {
    "pages in a browser": ("operators/api/test_api_pages.py",),
    "API server": (
        "operators/test_on_api_server.py",
        "operators/jobs/test_jobs_on_api_server.py",
        "operators/scheduling/test_scheduler_on_api_server.py",
        "operators/experiments/test_controller_on_api_server.py",
        "operators/experiments/test_runner_on_api_server.py",
        "emugpu/kubectl/test_kubectl_on_api_server.py",
    ),
    "PyTorch": (
        "cuda_frameworks/test_features.py",
        "cuda_frameworks/test_programs.py",
        "emulator_runtime/cuda/test_math_in_torch.py",
    ),
    "accuracy": (
        "scheduler_sims/clusters/local/test_local_cluster.py",
        "scheduler_sims/clusters/local/test_local_gangs.py",
    ),
}
"""What may not be skipped in CI, and the files below tests/ that prove it."""
SLOW = frozenset(
    {
        "deviceplugin/test_life.py",
        "emulator_runtime/cuda/driver_runtime/test_fuzz.py",
        "emulator_runtime/cuda/test_build.py",
        "emulator_runtime/cuda/test_math_fuzz.py",
        "emulator_runtime/cuda/test_nccl_membership.py",
        "emulator_runtime/cuda/test_redirect.py",
        "emulator_runtime/cuda/test_sanitized.py",
        "operators/api/test_api_pages.py",
        "operators/scheduling/test_scheduling_gangs.py",
        "operators/scheduling/test_scheduling_kills.py",
        "scheduler_sims/clusters/local/test_local_cluster.py",
        "scheduler_sims/clusters/local/test_originals_in_warp.py",
        "scheduler_sims/clusters/local/test_shared_local.py",
        "sharing_manager/core/test_kills.py",
        "sharing_manager/test_cluster_daemon.py",
        "sharing_manager/test_cuda_programs.py",
        "sharing_manager/test_job_process.py",
        "sharing_manager/test_programs.py",
    }
)
"""Files whose tests take longest: they start processes, compile, kill, wait. `make test` leaves them to `make test-slow`."""
API_SERVER = "api-server"
PAGES = "operators/api/test_api_pages.py"
_TESTS = Path(__file__).parent

settings.register_profile("any machine", deadline=None)  # an example that takes 200 ms says how busy the machine is
settings.register_profile(  # the same examples in each run, and no minutes of shrinking: a failure says what code did
    "CI", settings.get_profile("any machine"), derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("CI" if os.environ.get("CI") else "any machine")
_SAMPLE_S = 0.05


def slowdown() -> float:
    """How many times longer than alone this process takes now for what it computes; about 1 on a machine that has time for it."""
    began_s, used_s = time.monotonic(), time.process_time()
    while (computed_s := time.process_time() - used_s) < _SAMPLE_S:
        pass
    return (time.monotonic() - began_s) / computed_s


@pytest.fixture(name="slowdown")
def slowdown_now() -> Callable[[], float]:
    """`slowdown()`, for tests."""
    return slowdown


@pytest.fixture
def in_time() -> Callable[..., bool]:
    """`in_time(most_s=, since_s=)`: whether at most so many host seconds have passed since this moment of time.monotonic(), or,
    where other work keeps us from the CPU, as many times more as it makes everything here slower."""

    def judge(*, most_s: float, since_s: float) -> bool:
        passed_s = time.monotonic() - since_s
        return passed_s <= most_s or passed_s <= most_s * slowdown()

    return judge


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


# ---- how a run is spread over processes


@pytest.hookimpl(tryfirst=True)  # before -m chooses, and before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(_TESTS).as_posix() in SLOW or _group(item) == API_SERVER:
            item.add_marker("slow")
    if not getattr(config.option, "loadgroup", False):  # xdist sets it in its workers
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    slow = {_group(item) for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: _rank(_group(item), slow))


def _group(item: pytest.Item) -> str:
    if "kube_assets" in getattr(item, "fixturenames", ()) or "on_api_server" in item.path.name:
        return API_SERVER
    return item.path.relative_to(_TESTS).as_posix()


def _rank(group: str, slow: set[str]) -> tuple[int, str]:
    """Groups that wait for processes and servers come first: at the end they would keep the other workers waiting."""
    return [group == API_SERVER, group == PAGES, group in slow, True].index(True), group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with _turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """Tests run side by side, those that are `alone` by themselves. Who waits to be alone holds the gate, so that nobody
    overtakes: a lock that others share all the time would never be free. (Any two files of the checkout can be locked.)"""
    with Path(__file__).open() as gate, (_TESTS / "README.md").open() as tests:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(tests, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


# ---- what may not be skipped


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield
    proves = _proves(item)
    if report.skipped and proves and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{proves}: may not be skipped in CI. {_reason(report)}"
    return report


def _proves(item: pytest.Item) -> str:
    path = item.path.relative_to(_TESTS).as_posix()
    return next((what for what, paths in MUST_RUN.items() if path in paths), "")


def _reason(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report) for report in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests were skipped")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5}  {reason}")
