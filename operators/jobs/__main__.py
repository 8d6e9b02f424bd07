"""`python -m operators.jobs` runs the controllers of EmuJobs and experiments, and the results feed. One replica acts."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from emulator_runtime.domain.errors import ClusterError, UnknownNameError
from emulator_runtime.http_server import HttpServer
from emulator_runtime.node.settings import run_daemon
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.controllers.leader_election import Candidate, Leader, LeadershipLostError, Terms
from operators.controllers.status_server import loop_alive, status_server
from operators.experiments.controller import controller as experiments
from operators.jobs.controller import Controller, Dependencies, JobMetrics
from operators.jobs.manifests import Images
from operators.jobs.observer import Observer
from operators.jobs.recording import Clocks, Links, Recording
from operators.jobs.settings import Settings, runner_settings
from operators.kube.api import Api
from operators.kube.client import KubeApi
from operators.results_feed.server import TokenCheck, feed_pages

Work = Callable[[], Coroutine[Any, Any, None]]
_POLICIES = ("Always", "IfNotPresent", "Never")
EXIT_LOST = 1


def main(argv: list[str]) -> int:
    """Returns 0 after a signal, 1 if another replica may act now, 2 for a wrong setting."""
    purpose = "Creates a Job for each EmuJob and reports what became of it."
    return run_daemon(argv, "operators.jobs", purpose, Settings, lambda settings: asyncio.run(_serve(settings)))


async def _serve(settings: Settings) -> int:
    """start, wait for the lease, serve, stop. The first signal ends at once: a reconciliation may be cut anywhere."""
    port, images, lease_s = settings.metrics_port, _images(settings), settings.lease_s
    terms = Terms(lease_s, lease_s * 2 / 3, lease_s / 8)
    api, metrics, loop = KubeApi(), JobMetrics(), asyncio.get_running_loop()
    candidate = Candidate(settings.namespace, settings.lease, settings.identity, terms)
    leader = Leader(api, candidate, monotonic_ns, wall_ns)

    def changed(uids: Collection[str]) -> None:
        loop.call_soon_threadsafe(controller.look_again, *uids)

    links = Links(leads=lambda: leader.holds, changed=changed)
    recording = Recording(settings, metrics.registry, Clocks(wall_ns, monotonic_ns), links)
    profiles = ProfileTable.bundled()
    observe = Observer(recording.results, profiles).look
    outcomes = recording.results.outcome
    dependencies = Dependencies(
        images,
        profiles,
        wall_ns,
        may_act=lambda: leader.holds,
        outcomes=outcomes,
        observe=observe,
        log_connected=lambda: recording.log_connected,
    )
    controller = Controller(api, metrics, dependencies)

    experiments = _experiments(settings, api, metrics, leader)

    def ready() -> str:
        """A replica that waits for the lease is ready; so is one whose store or Redis is away, which metrics report."""
        return controller.problem if leader.holds else ""

    server = status_server(port, metrics.registry, healthy=loop_alive(loop), ready=ready) if port else None
    feed = _results_feed(settings, api, recording, lambda: leader.holds)
    servers = [each for each in (server, feed) if each is not None]
    for each in servers:
        each.start()
    works = [controller.run, *([experiments.run] if experiments is not None else [])]
    working = asyncio.create_task(_work(leader, works, metrics, recording))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        return 0
    finally:
        await leader.release()
        for each in servers:
            each.close()
        await api.close()


async def _work(leader: Leader, works: Sequence[Work], metrics: JobMetrics, recording: Recording) -> int:
    await leader.acquire(_say)
    metrics.leading.set(1)
    status = 0
    recording.start()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.keep(_say))
            for work in works:
                group.create_task(work())
    except* LeadershipLostError as lost:
        _say(str(_first(lost)))
        status = EXIT_LOST
    finally:
        recording.stop()  # the loop has nothing else to do any more
    return status


def _results_feed(settings: Settings, api: Api, recording: Recording, leads: Callable[[], bool]) -> HttpServer | None:
    """The results for the API, where it is to read them. Raises ClusterError where the port is taken."""
    port = settings.results_port
    readers = frozenset(name.strip() for name in settings.results_readers.split(",") if name.strip())
    if not port or not readers:
        return None
    accepted = TokenCheck(api, asyncio.get_running_loop(), readers, monotonic_ns)
    try:
        return HttpServer(port, feed_pages(recording.feed, accepted, leads), monotonic_ns)
    except OSError as error:
        variable = settings.variable("results_port")
        raise ClusterError(f"{variable}: port {port} can't be opened: {error.strerror}; choose another one") from error


def _experiments(settings: Settings, api: Api, metrics: JobMetrics, leader: Leader) -> experiments.Controller | None:
    """The controller of SchedulingExperiments, if runners have an image."""
    if not settings.experiment_image:
        return None
    dependencies = experiments.Dependencies(runner_settings(settings), wall_ns, lambda: leader.holds)
    return experiments.Controller(api, experiments.ExperimentMetrics(metrics.registry), dependencies)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _say(text: str) -> None:
    print(f"jobs: {text}", file=sys.stderr, flush=True)


def _images(settings: Settings) -> Images:
    if settings.pull_policy not in _POLICIES:
        raise UnknownNameError(settings.variable("pull_policy"), "pull policy", settings.pull_policy, _POLICIES)
    secrets = tuple(name.strip() for name in settings.pull_secrets.split(",") if name.strip())
    return Images(settings.image, settings.pull_policy, secrets)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
