"""The webhook's answer, by the table that the policy is tested with as well, and what it says to anything that is no review."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ProtocolError
from operators.admission.review import containers, review

ObjectOf = Callable[..., dict[str, Any]]


def ask(document: dict[str, Any], old: dict[str, Any] | None = None, **options: str) -> dict[str, Any]:
    request = {"uid": "u1", "kind": {"kind": document["kind"]}, "object": document, "oldObject": old}
    answer = review({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}, **options)
    assert answer["kind"] == "AdmissionReview"
    assert answer["response"]["uid"] == "u1"
    response: dict[str, Any] = answer["response"]
    return response


def patched(document: Any, response: dict[str, Any]) -> Any:
    """A small RFC 6902 of its own: what the API server would make of the answer."""
    result = json.loads(json.dumps(document))
    for operation in json.loads(base64.b64decode(response.get("patch", base64.b64encode(b"[]")))):
        value = operation.get("value")
        if operation["op"] in ("move", "copy"):
            owner, key = owner_of(result, operation["from"])
            value = owner.pop(key) if operation["op"] == "move" else owner[key]
        owner, key = owner_of(result, operation["path"])
        owner[key] = value
    return result


def owner_of(document: Any, pointer: str) -> tuple[dict[str, Any], str]:
    *keys, last = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    for key in keys:
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document, last


def texts(resources: Any) -> Any:
    """Amounts as the API server shows them; nothing where a part is missing."""
    return {part: {name: str(amount) for name, amount in amounts.items()} for part, amounts in resources.items()}


def test_rewrites_or_refuses_as_the_table_says(alias_case: dict[str, Any], object_of: ObjectOf) -> None:
    document = object_of(alias_case)
    response = ask(document, object_of(alias_case, old=True) if "old" in alias_case else None)
    if "refused" in alias_case:
        assert response["allowed"] is False
        assert response["status"]["message"] == alias_case["refused"]
        assert "patch" not in response
        return
    assert response["allowed"] is True
    seen = list(containers(document["kind"], patched(document, response)))
    expected = [alias_case["expected"], *([alias_case["expected_init"]] if "init" in alias_case else [])]
    assert [texts(c.resources) for c in seen] == expected


def test_a_request_without_the_alias_gets_no_patch(object_of: ObjectOf) -> None:
    response = ask(object_of({"kind": "Pod", "resources": {"limits": {"cpu": "1"}}}))
    assert response == {"uid": "u1", "allowed": True}


def test_a_second_run_changes_nothing(alias_case: dict[str, Any], object_of: ObjectOf) -> None:
    document = object_of(alias_case)
    if "refused" not in alias_case:
        old = object_of(alias_case, old=True) if "old" in alias_case else None
        assert "patch" not in ask(patched(document, ask(document, old)), old)


def test_a_limit_range_gives_way(object_of: ObjectOf) -> None:
    resources = {"limits": {"emuGPU": 4, "emugpu.dev/emuGPU": 1}, "requests": {"emuGPU": 4, "emugpu.dev/emuGPU": 1}}
    document = object_of({"kind": "Pod", "resources": resources})
    note = "LimitRanger plugin set: cpu, emugpu.dev/emuGPU limit for container train"
    document["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": note}
    (container,) = containers("Pod", patched(document, ask(document)))
    assert container.resources == {"limits": {"emugpu.dev/emuGPU": 4}, "requests": {"emugpu.dev/emuGPU": 4}}
    document["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu limit"}
    assert ask(document)["allowed"] is False


def test_what_is_no_count_contradicts(object_of: ObjectOf) -> None:
    document = object_of({"kind": "Job", "resources": {"limits": {"emuGPU": 2, "emugpu.dev/emuGPU": "two"}}})
    assert "asks for 2 of the one and two of the other" in ask(document)["status"]["message"]


def test_words_are_refused_with_the_place(object_of: ObjectOf) -> None:
    response = ask(object_of({"kind": "Pod", "resources": {"limits": {"emuGPU": "two"}}}))
    assert response["allowed"] is False
    assert response["status"]["message"] == (
        "emuGPU counts whole devices: 'two' in spec.containers[0] (\"train\") is no number; "
        "ask for 1, or use a pool with timeSlicing"
    )


def test_the_names_can_be_chosen(object_of: ObjectOf) -> None:
    document = object_of({"kind": "Job", "resources": {"limits": {"gpu": 2}}})
    (container,) = containers("Job", patched(document, ask(document, alias="gpu", resource="example.com/a~b")))
    assert container.resources == {"limits": {"example.com/a~b": 2}}


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        (None, "request"),
        ([], "request"),
        ({"request": {"kind": {"kind": "Pod"}, "object": {}}}, "uid"),
        ({"request": {"uid": "u", "kind": {}, "object": {}}}, "kind"),
        ({"request": {"uid": "u", "kind": {"kind": "Pod"}, "object": None}}, "object"),
    ],
)
def test_what_is_no_review_is_told_so(body: object, missing: str) -> None:
    with pytest.raises(ProtocolError, match=f"AdmissionReview: {missing} is missing"):
        review(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "template", "containers", "resources", "limits", "requests", "emuGPU"]), inner
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["Pod", "Job", "CronJob", "PodTemplate", "Deployment"]))
def test_no_object_makes_it_fail(document: Any, kind: str) -> None:
    if document is not None:
        request = {"uid": "u", "kind": {"kind": kind}, "object": document}
        assert review({"request": request})["response"]["uid"] == "u"
