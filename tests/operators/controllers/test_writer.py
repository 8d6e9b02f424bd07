"""Every write that was planned from an object fails where the object has another version by now."""

from __future__ import annotations

import asyncio

import pytest

from operators.controllers.actions import CommonAction, DeleteJob, SuspendJob, WriteStatus
from operators.controllers.writer import Author, write_common
from operators.kube.api import EMUJOB, JOB, ConflictError
from operators.kube.documents import key_of
from tests.support.fake_api import FakeApi

AUTHOR = Author("tests", EMUJOB, "EmuJob", "tests")


def planned(api: FakeApi, kind: str) -> CommonAction:
    if kind == "status":
        return WriteStatus(key_of(api.stored(EMUJOB, "lab/a")), {"phase": "Running"})
    key = key_of(api.stored(JOB, "lab/a"))
    return SuspendJob(key, True) if kind == "suspend" else DeleteJob(key)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    for resource in (EMUJOB, JOB):
        api.put(resource, {"metadata": {"name": "a", "namespace": "lab", "uid": f"uid-{resource.plural}"}, "spec": {}})
    return api


@pytest.mark.parametrize("kind", ["status", "suspend"])
def test_a_write_names_the_version_that_it_was_planned_from(kind: str, api: FakeApi) -> None:
    action = planned(api, kind)
    for resource in (EMUJOB, JOB):
        api.put(resource, api.stored(resource, "lab/a") | {"spec": {"changed": True}})
    with pytest.raises(ConflictError, match="modified"):
        asyncio.run(write_common(api, action, AUTHOR, 0))
    assert asyncio.run(write_common(api, planned(api, kind), AUTHOR, 0)) is not None


def test_a_delete_names_the_uid(api: FakeApi) -> None:
    action = planned(api, "delete")
    api.put(JOB, {"metadata": {"name": "a", "namespace": "lab", "uid": "another"}, "spec": {}})
    with pytest.raises(ConflictError, match="another uid"):
        asyncio.run(write_common(api, action, AUTHOR, 0))
    assert api.stored(JOB, "lab/a")["metadata"]["uid"] == "another"
