from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from emulator_runtime.domain.errors import ClusterError
from operators.experiments import run_namespace
from operators.experiments.controller.controller import Controller, Dependencies, ExperimentMetrics
from operators.experiments.controller.runner_job import RunnerSettings
from operators.experiments.executor import limit_s
from operators.experiments.runner.runner import remove_leftovers
from operators.kube.api import (
    CONFIG_MAP,
    EMUJOB,
    EXPERIMENT,
    NAMESPACE,
    ApiAwayError,
    ConflictError,
    ForbiddenError,
    NotThereError,
)
from operators.kube.informer import Pauses
from operators.objects.names import EXPERIMENT_UID_LABEL


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_namespace, "_POLL_S", 0.01)


def clock() -> Any:
    """Ten seconds go by between any two looks."""
    times = iter(range(0, 10**15, 10**10))
    return lambda: next(times)


def test_a_namespace_comes_and_goes_with_what_is_in_it(world: Any) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    labels = world.stored(NAMESPACE, "exp-1")["metadata"]["labels"]
    assert labels["emugpu.dev/experiment"] == "1f"
    job = {"metadata": {"name": "a", "namespace": "exp-1"}, "spec": {"steps": 1}}
    other = {"metadata": {"name": "a", "namespace": "other"}, "spec": {"steps": 1}}
    world.put(EMUJOB, job)
    world.put(EMUJOB, other)
    asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))
    assert world.log[-2:] == [("delete", "emujobs", "a"), ("delete", "namespaces", "exp-1")]
    assert list(world.objects["emujobs"]) == ["other/a"]


def test_somebody_else_s_namespace_is_left_alone(world: Any) -> None:
    world.put(NAMESPACE, {"metadata": {"name": "exp-1"}})
    with pytest.raises(ConflictError):
        asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))


@pytest.mark.parametrize("claimed", ["nonsense", "u"])
def test_a_namespace_of_a_tenant_that_claims_to_be_a_runs_neither_stops_experiments_nor_is_deleted(
    world: Any, claimed: str
) -> None:
    """Its owner may label it."""
    metadata = {"name": "e", "namespace": "lab", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    world.put(EXPERIMENT, {"metadata": metadata, "spec": {"workload": {"inline": "job_id\n"}, "policies": ["fifo"]}})
    world.put(NAMESPACE, {"metadata": {"name": "tenant-a", "labels": {EXPERIMENT_UID_LABEL: claimed}}})
    dependencies = Dependencies(RunnerSettings("emugpu", "a", "emugpu-scheduler:1"), lambda: 1_767_225_600_000_000_000)
    pauses = Pauses(settle=0.001, first=0.001, longest=0.01)

    async def until_a_runner_is_there() -> None:
        controller = Controller(world.api(), ExperimentMetrics(CollectorRegistry()), dependencies, pauses)
        working = asyncio.create_task(controller.run())
        async with asyncio.timeout(30):
            while not world.objects.get("jobs"):
                await world.wake()
                await asyncio.sleep(0.002)
        working.cancel()
        await asyncio.wait([working])
        await remove_leftovers(world, "u", clock())

    asyncio.run(until_a_runner_is_there())
    assert list(world.objects["namespaces"]) == ["tenant-a"]


def test_what_is_not_there_needs_no_clearing(world: Any) -> None:
    world.failures["list"] = [NotThereError("the server has no such kind")]
    asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))


def test_a_namespace_that_stays_is_reported(world: Any) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    world.stays = True
    with pytest.raises(ClusterError, match="namespace exp-1 is still being deleted after 180 s; see `kubectl get"):
        asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))


@pytest.mark.parametrize("failing", ["list", "delete", "get"])
def test_an_api_server_that_is_away_for_a_while_is_asked_again(world: Any, failing: str) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    world.put(EMUJOB, {"metadata": {"name": "a", "namespace": "exp-1"}, "spec": {"steps": 1}})
    world.failures[failing] = [ApiAwayError("the API server is away")] * 2
    asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))
    assert world.objects["namespaces"] == {} and world.objects["emujobs"] == {}


def test_an_api_server_that_stays_away_is_reported_with_what_is_left(world: Any) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    world.failures["list"] = [ApiAwayError("the API server is away")] * 99
    with pytest.raises(
        ClusterError, match=r"namespace exp-1 may not be deleted yet \(the API server is away\) after 180 s"
    ):
        asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))


def test_what_does_not_heal_is_not_tried_again(world: Any) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    world.failures["delete"] = [ForbiddenError("delete namespaces exp-1: forbidden")]
    with pytest.raises(ForbiddenError):
        asyncio.run(run_namespace.remove(world.api(), "exp-1", clock()))


def test_a_run_may_take_three_times_as_long_as_predicted() -> None:
    assert (limit_s(0.0), limit_s(100.0)) == (600.0, 900.0)


def test_the_files_of_programs_are_in_the_namespace(world: Any) -> None:
    asyncio.run(run_namespace.create(world.api(), "exp-1", "1f"))
    asyncio.run(run_namespace.add_program_files(world.api(), "exp-1", {"train.py": "print(1)"}))
    stored = world.stored(CONFIG_MAP, "exp-1/program-files")
    assert stored["data"] == {"train.py": "print(1)"} and stored["immutable"] is True
