"""What controllers rely on, case by case against the API server in memory and against a real one: both must do the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from operators.kube.api import (
    CONFIG_MAP,
    EMUJOB,
    LEASE,
    NAMESPACE,
    ON_NODES,
    POD,
    Api,
    ApiAwayError,
    ConflictError,
    Json,
    NotThereError,
    Resource,
    applied,
)
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import from_document
from tests.support.api_server import ApiServer
from tests.support.fake_api import FakeApi

Case = Callable[[Api, str], Awaitable[None]]
Play = Callable[[Case], None]
MANAGER = "contract"
_numbers = itertools.count()


@pytest.fixture(params=["in-memory", "kube-apiserver"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    """Runs a case with an Api and the name of a namespace of its own."""
    real: ApiServer | None = None
    if request.param == "kube-apiserver":
        real = request.getfixturevalue("cluster")
    namespace = f"contract-{next(_numbers)}"

    def run(case: Case) -> None:
        asyncio.run(_run(case, namespace, real))

    yield run
    if real is not None:
        real.request("DELETE", f"/api/v1/namespaces/{namespace}")


async def _run(case: Case, namespace: str, real: ApiServer | None) -> None:
    api = FakeApi() if real is None else KubeApi(from_document(real.kubeconfig()))
    try:
        await api.create(NAMESPACE, {"metadata": {"name": namespace}})
        await case(api, namespace)
    finally:
        await api.close()


def config_map(namespace: str, name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "data": {"a": "1"}}


def emujob(namespace: str, name: str, **metadata: Any) -> Json:
    template = {"spec": {"containers": [{"name": "train", "image": "i"}]}}
    spec = {"steps": 10, "stepTime": "1s", "gpus": 1, "template": template}
    return applied(EMUJOB, name, "", metadata={"namespace": namespace, **metadata}, spec=spec)


def pod(namespace: str, name: str) -> Json:
    containers = [{"name": name, "image": "old"} for name in ("first", "second")]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"containers": containers}}


def version(document: Json) -> str:
    return str(document["metadata"]["resourceVersion"])


def generation(document: Json) -> int:
    return int(document["metadata"]["generation"])


async def events(api: Api, resource: Resource, since: str, count: int, **options: str) -> list[tuple[str, str]]:
    """The next `count` events of a watch: their kinds and the names of their objects."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(20):
        async for kind, document in api.watch(resource, since, **options):
            found.append((kind, document["metadata"]["name"]))
            if len(found) == count:
                break
    return found


async def names(api: Api, resource: Resource, **options: str) -> list[str]:
    return sorted(document["metadata"]["name"] for document in (await api.list(resource, **options))[1])


def test_selectors(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(CONFIG_MAP, config_map(namespace, "one", labels={"a": "1", "b": "1"}))
        await api.create(CONFIG_MAP, config_map(namespace, "two", labels={"a": "2"}))
        await api.create(CONFIG_MAP, config_map(namespace, "none"))
        for labels, expected in (
            ("a", ["one", "two"]),
            ("a=1", ["one"]),
            ("a!=1,a", ["two"]),
            ("a in (1,2),!b", ["two"]),
            ("b notin (1),a", ["two"]),
        ):
            assert await names(api, CONFIG_MAP, namespace=namespace, labels=labels) == expected
        assert await names(api, CONFIG_MAP, namespace=namespace, fields="metadata.name=two") == ["two"]
        assert "none" not in await names(api, CONFIG_MAP, namespace=namespace, fields="metadata.name!=none")
        assert {"one", "two"} <= set(await names(api, CONFIG_MAP))

    play(case)


def test_a_watch_tells_each_change_since_a_version(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        since, _ = await api.list(CONFIG_MAP, namespace=namespace)
        await api.create(CONFIG_MAP, config_map(namespace, "a", labels={"l": "1"}))
        await api.create(CONFIG_MAP, config_map(namespace, "b"))
        await api.patch(CONFIG_MAP, "a", {"metadata": {"namespace": namespace}, "data": {"a": "2"}}, MANAGER)
        await api.delete(CONFIG_MAP, "a", namespace)
        story = [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]
        assert await events(api, CONFIG_MAP, since, 4, namespace=namespace) == story
        labelled = [each for each in story if each[1] == "a"]
        assert await events(api, CONFIG_MAP, since, 3, namespace=namespace, labels="l=1") == labelled

    play(case)


def test_a_forgotten_version_can_not_be_watched(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(EMUJOB, emujob(namespace, "a"))
        if isinstance(api, FakeApi):
            api.compact()
        for _ in range(50):
            try:  # a real server has no versions before the definition
                with pytest.raises(NotThereError, match="too old resource version"):
                    await events(api, EMUJOB, "1", 1, namespace=namespace)
            except ApiAwayError:  # a real server refuses watches while it prepares the storage of a new definition
                await asyncio.sleep(0.1)
            else:
                return
        pytest.fail("the server's storage is not ready after 5 s")

    play(case)


def test_every_write_makes_a_new_version_unless_it_changes_nothing(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(CONFIG_MAP, config_map(namespace, "a"))
        changed = await api.patch(CONFIG_MAP, "a", {"metadata": {"namespace": namespace}, "data": {"b": "1"}}, MANAGER)
        assert int(version(changed)) > int(version(made))
        same = await api.patch(CONFIG_MAP, "a", {"metadata": {"namespace": namespace}, "data": {"b": "1"}}, MANAGER)
        assert version(same) == version(changed)

    play(case)


@pytest.mark.parametrize("operation", ["apply", "patch", "replace", "apply-status"])
def test_an_older_version_is_a_conflict(operation: str, play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(EMUJOB, emujob(namespace, "a"))
        await api.patch(EMUJOB, "a", {"metadata": {"namespace": namespace, "labels": {"x": "1"}}}, MANAGER)
        metadata = {"name": "a", "namespace": namespace, "resourceVersion": version(made)}
        with pytest.raises(ConflictError):
            await write(api, operation, metadata)
        assert "status" not in await api.get(EMUJOB, "a", namespace)

    play(case)


async def write(api: Api, operation: str, metadata: Json) -> None:
    if operation == "apply":
        await api.apply(EMUJOB, "a", applied(EMUJOB, "a", "", metadata={**metadata, "labels": {"x": "2"}}), MANAGER)
    elif operation == "patch":
        await api.patch(EMUJOB, "a", {"metadata": {**metadata, "labels": {"x": "2"}}}, MANAGER)
    elif operation == "replace":
        await api.replace(EMUJOB, emujob(metadata["namespace"], "a", resourceVersion=metadata["resourceVersion"]))
    else:
        status = applied(EMUJOB, "a", "", metadata=metadata, status={"phase": "Running"})
        await api.apply(EMUJOB.status, "a", status, MANAGER)


def test_another_uid_is_another_object(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(EMUJOB, emujob(namespace, "a"))
        metadata = {"namespace": namespace, "uid": "7f6d0f0c-0000-0000-0000-000000000000"}
        with pytest.raises(NotThereError):
            await api.apply(EMUJOB, "a", applied(EMUJOB, "a", "", metadata=metadata), MANAGER)
        with pytest.raises(NotThereError):
            await api.apply(EMUJOB, "b", applied(EMUJOB, "b", "", metadata=metadata), MANAGER)
        with pytest.raises((NotThereError, ConflictError)):
            await api.patch(EMUJOB, "a", {"metadata": metadata}, MANAGER)
        with pytest.raises(ConflictError):
            await api.delete(EMUJOB, "a", namespace, uid=metadata["uid"])
        assert await names(api, EMUJOB, namespace=namespace) == ["a"]

    play(case)


def test_what_exists_can_not_be_created_and_what_does_not_can_not_be_changed(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(CONFIG_MAP, config_map(namespace, "a"))
        with pytest.raises(ConflictError):
            await api.create(CONFIG_MAP, config_map(namespace, "a"))
        for missing in (
            api.get(CONFIG_MAP, "b", namespace),
            api.patch(CONFIG_MAP, "b", {"metadata": {"namespace": namespace}}, MANAGER),
            api.apply(EMUJOB.status, "b", applied(EMUJOB, "b", "", metadata={"namespace": namespace}), MANAGER),
        ):
            with pytest.raises(NotThereError):
                await missing
        await api.delete(CONFIG_MAP, "b", namespace)

    play(case)


def test_an_apply_creates_and_then_owns_what_it_names(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        def document(**labels: str) -> Json:
            return applied(LEASE, "a", "", metadata={"namespace": namespace, "labels": labels})

        made = await api.apply(LEASE, "a", document(x="1", y="1"), MANAGER)
        assert made["metadata"]["uid"]
        await api.patch(LEASE, "a", {"metadata": {"namespace": namespace, "labels": {"z": "1"}}}, "somebody")
        after = await api.apply(LEASE, "a", document(x="2"), MANAGER)
        assert after["metadata"]["labels"] == {"x": "2", "z": "1"}

    play(case)


def test_the_generation_counts_changes_of_the_spec(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(EMUJOB, emujob(namespace, "a"))
        labelled = await api.patch(EMUJOB, "a", {"metadata": {"namespace": namespace, "labels": {"x": "1"}}}, MANAGER)
        changed = await api.patch(
            EMUJOB, "a", {"metadata": {"namespace": namespace}, "spec": {"suspend": True}}, MANAGER
        )
        assert [generation(each) for each in (made, labelled, changed)] == [1, 1, 2]
        status = applied(EMUJOB, "a", "", metadata={"namespace": namespace}, status={"phase": "Running"})
        assert generation(await api.apply(EMUJOB.status, "a", status, MANAGER)) == 2

    play(case)


def test_the_status_is_written_apart_from_the_rest(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(EMUJOB, emujob(namespace, "a") | {"status": {"phase": "Failed"}})
        assert "status" not in made
        both = {"status": {"phase": "Running"}, "spec": {"steps": 99}}
        document = applied(EMUJOB, "a", "", metadata={"namespace": namespace}, **both)
        after = await api.apply(EMUJOB.status, "a", document, MANAGER)
        assert (after["status"]["phase"], after["spec"]["steps"]) == ("Running", 10)
        after = await api.patch(EMUJOB, "a", {"metadata": {"namespace": namespace}, "status": {"phase": "x"}}, MANAGER)
        assert after["status"]["phase"] == "Running"

    play(case)


def test_an_object_with_finalizers_stays_until_the_last_is_removed(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        finalizers = ["emugpu.dev/a", "emugpu.dev/b"]
        made = await api.create(EMUJOB, emujob(namespace, "a", finalizers=finalizers))
        since = version(made)
        await api.delete(EMUJOB, "a", namespace, uid=made["metadata"]["uid"])
        assert (await api.get(EMUJOB, "a", namespace))["metadata"]["deletionTimestamp"]
        await api.delete(EMUJOB, "a", namespace)
        for rest in (finalizers[1:], []):
            await api.patch(EMUJOB, "a", {"metadata": {"namespace": namespace, "finalizers": rest}}, MANAGER)
        with pytest.raises(NotThereError):
            await api.get(EMUJOB, "a", namespace)
        found = await events(api, EMUJOB, since, 3, namespace=namespace)
        assert [kind for kind, _ in found] == ["MODIFIED", "MODIFIED", "DELETED"]

    play(case)


def test_null_removes_a_member(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(EMUJOB, emujob(namespace, "a", annotations={"x": "1", "y": "1"}))
        patch: Json = {"metadata": {"namespace": namespace, "annotations": {"x": None}}}
        after = await api.patch(EMUJOB, "a", patch, MANAGER)
        assert after["metadata"]["annotations"] == {"y": "1"}

    play(case)


def test_containers_of_a_pod_are_merged_by_name(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        await api.create(POD, pod(namespace, "p"))
        patch = {"metadata": {"namespace": namespace}, "spec": {"containers": [{"name": "second", "image": "new"}]}}
        after = await api.patch(POD, "p", patch, MANAGER)
        assert [each["image"] for each in after["spec"]["containers"]] == ["old", "new"]

    play(case)


def test_a_pod_is_bound_once(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(POD, pod(namespace, "p"))
        uid = made["metadata"]["uid"]
        with pytest.raises(ConflictError):
            await api.bind("p", namespace, "7f6d0f0c-0000-0000-0000-000000000000", "w1")
        assert await names(api, POD, namespace=namespace, fields=ON_NODES) == []
        await api.bind("p", namespace, uid, "w1")
        assert await names(api, POD, namespace=namespace, fields=ON_NODES) == ["p"]
        with pytest.raises(ConflictError):
            await api.bind("p", namespace, uid, "w2")
        with pytest.raises(NotThereError):
            await api.bind("q", namespace, uid, "w1")

    play(case)


def test_a_replace_takes_the_place_of_the_version_it_names(play: Play) -> None:
    async def case(api: Api, namespace: str) -> None:
        made = await api.create(
            LEASE, {"metadata": {"name": "a", "namespace": namespace}, "spec": {"holderIdentity": "x"}}
        )
        after = await api.replace(LEASE, {**made, "spec": {"holderIdentity": "y"}})
        assert after["spec"]["holderIdentity"] == "y" and after["metadata"]["uid"] == made["metadata"]["uid"]
        with pytest.raises(ConflictError):
            await api.replace(LEASE, made)
        with pytest.raises((NotThereError, ConflictError)):
            await api.replace(LEASE, {**made, "metadata": {**made["metadata"], "name": "b"}})

    play(case)
