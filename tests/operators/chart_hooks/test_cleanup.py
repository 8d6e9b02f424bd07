"""Before an uninstall: experiments, pools, labels and annotations are removed, and nodes that don't answer are named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operators.chart_hooks.cleanup import NodePods, cleanup
from operators.chart_hooks.cleanup import main as cleanup_main
from operators.chart_hooks.experiments import stop_experiments
from operators.kube.api import EXPERIMENT, JOB, NAMESPACE, NODE, POD, POOL, NotThereError
from operators.objects.names import EXPERIMENT_FINALIZER, EXPERIMENT_UID_LABEL
from tests.support.fake_api import FakeApi


def node(name: str, uid: str = "u") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def pool(name: str = "p", **spec: Any) -> dict[str, Any]:
    gpus = [{"type": "T4", "count": 2}]
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {"metadata": metadata, "spec": {"gpus": gpus, **spec}}


def pod(name: str, on: str, *, ready: bool) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    metadata = {"name": name, "namespace": "emugpu", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": {"nodeName": on}, "status": {"conditions": conditions}}


def owned(name: str) -> dict[str, Any]:
    document = node(name)
    keys = {"f:labels": {"f:emugpu.dev/pool": {}}, "f:annotations": {"f:emugpu.dev/inventory": {}}}
    fields = {"manager": "emugpu-pools", "operation": "Apply", "fieldsV1": {"f:metadata": keys}}
    document["metadata"] |= {
        "labels": {"emugpu.dev/pool": "p", "zone": "a"},
        "annotations": {"emugpu.dev/inventory": "{}"},
        "managedFields": [fields],
    }
    return document


def test_cleanup_takes_everything_back_and_names_who_is_late() -> None:
    api = FakeApi()
    api.put(POOL, pool())
    for name in ("w1", "w2"):
        api.put(NODE, owned(name))
    api.put(NODE, node("w3"))
    api.put(POD, pod("a", "w1", ready=False))
    api.put(POD, pod("b", "w2", ready=True))
    seen: list[str] = []
    late = asyncio.run(cleanup(api, NodePods("emugpu", {"a": "b"}, 0.0), seen.append))
    assert late == ["w2"]
    assert api.objects["emugpupools"] == {}
    for name in ("w1", "w2"):
        metadata = api.stored(NODE, name)["metadata"]
        assert metadata["labels"] == {"zone": "a"}
        assert metadata["annotations"] == {}
    assert [write for write in api.log if write[2] == "w3"] == []
    assert [write[:2] for write in api.log] == [("delete", "emugpupools"), *[("apply", "nodes")] * 4]
    assert seen[-1] == "node w2: its daemon did not finish in 0 s; the node directory may be left there"


def test_cleanup_waits_for_the_daemons() -> None:
    api = FakeApi()
    api.put(NODE, owned("w1"))
    api.put(POD, pod("a", "w1", ready=True))

    async def story() -> list[str]:
        task = asyncio.create_task(cleanup(api, NodePods("emugpu", {"a": "b"}, 5.0), lambda _text: None))
        while "cleanup" not in api.stored(NODE, "w1")["metadata"]["annotations"].get("emugpu.dev/inventory", ""):
            await asyncio.sleep(0.001)
        api.put(POD, pod("a", "w1", ready=False))
        return await task

    assert asyncio.run(story()) == []


def test_cleanup_without_definitions_or_nodes() -> None:
    api = FakeApi()
    api.failures = {"list": [NotThereError("the server could not find the requested resource")]}
    assert asyncio.run(cleanup(api, NodePods("emugpu", {"a": "b"}, 0.0), lambda _text: None)) == []
    api.put(NODE, owned("w1"))
    api.failures = {"apply": [NotThereError("gone"), NotThereError("gone")]}
    assert asyncio.run(cleanup(api, NodePods("emugpu", {"a": "b"}, 0.0), lambda _text: None)) == []


def test_an_uninstall_holds_and_lets_go() -> None:
    api = FakeApi()
    own, said = {"labels": {EXPERIMENT_UID_LABEL: "u1"}}, list[str]()
    for name, phase in (("u1", "Running"), ("u2", "Succeeded"), ("u3", "Queued")):
        metadata = {"name": name, "namespace": "lab", "uid": name, "finalizers": [EXPERIMENT_FINALIZER, "other"]}
        api.put(EXPERIMENT, {"metadata": metadata, "spec": {}, "status": {"phase": phase}})
    api.put(JOB, {"metadata": {"name": "r", "namespace": "emugpu", "uid": "r", **own}})
    api.put(NAMESPACE, {"metadata": {"name": "emugpu-exp-1-1", **own}})
    api.put(NAMESPACE, {"metadata": {"name": "tenant-a", **own}})
    asyncio.run(stop_experiments(api, "emugpu", said.append))
    found = {name: api.stored(EXPERIMENT, f"lab/{name}") for name in ("u1", "u2", "u3")}
    assert [each["spec"].get("suspend", False) for each in found.values()] == [True, False, True]
    assert {tuple(each["metadata"]["finalizers"]) for each in found.values()} == {("other",)}
    assert (list(api.objects["jobs"]), list(api.objects["namespaces"])) == ([], ["tenant-a"])
    assert said == [
        "experiment lab/u1 is suspended",
        "experiment lab/u3 is suspended",
        "namespace emugpu-exp-1-1 deleted",
    ]


def test_an_uninstall_without_the_definition_has_nothing_to_do() -> None:
    api = FakeApi()
    api.failures["list"] = [NotThereError("no such kind")]
    asyncio.run(stop_experiments(api, "emugpu", lambda _text: None))


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {"EMUGPU_CLEANUP_NODE_PODS": "x"}, "EMUGPU_CLEANUP_NODE_PODS: must be label=value, got 'x'"),
        ([], {"EMUGPU_CLEANUP_TIMEOUT_S": "-1"}, "EMUGPU_CLEANUP_TIMEOUT_S: must be a whole number from 0 to 600"),
        (["all"], {}, "takes no arguments; see --help"),
    ],
)
def test_cleanup_says_why_it_cannot_start(
    arguments: list[str],
    environment: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cleanup_main(arguments) == 2
    assert words in capsys.readouterr().err
