"""What the paths answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError, RefusedError
from operators.api.routes.jobs import _PLACES, _after, _cursor
from operators.kube.api import ApiAwayError, ConflictError


def test_the_cluster_and_its_figures(place: Any) -> None:
    (state,) = place.get("/clusters")["items"]
    assert state["cluster"]["title"] == "test"
    assert state["version"] == 7
    assert state["now_s"] == 10.0
    assert state["jobs"] == {"Running": 1, "Queued": 1, "Succeeded": 1}
    assert (state["nodes"], state["devices"], state["held"], state["unhealthy"]) == (2, 3, 1, 1)


def test_nodes_and_devices(place: Any) -> None:
    assert [node["name"] for node in place.get("/nodes")["items"]] == ["w1", "w2"]
    devices = place.get("/devices")["items"]
    assert [(each["id"], each["held"], each["healthy"]) for each in devices] == [
        ("w1/0", True, True),
        ("w1/1", False, False),
        ("w2/0", False, True),
    ]
    assert devices[0]["holders"] == ["u1"]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["u1", "u2", "u3"]),
        ({"phase": "Running"}, ["u1"]),
        ({"phase": ["Running", "Queued"]}, ["u1", "u2"]),
        ({"namespace": "lab"}, ["u1", "u3"]),
        ({"policy": "allox"}, ["u1"]),
        ({"policy": ""}, ["u2", "u3"]),
        ({"experiment": "e"}, ["u3"]),
        ({"name": "ANN"}, ["u2"]),
        ({"name": "w1"}, ["u1"]),
        ({"cluster": "local"}, []),
        ({"order": "newest"}, ["u3", "u2", "u1"]),
        ({"order": "ended"}, ["u3", "u1", "u2"]),
    ],
)
def test_jobs_are_filtered(place: Any, parameters: dict[str, Any], expected: list[str]) -> None:
    page = place.get("/jobs", **parameters)
    assert [each["uid"] for each in page["items"]] == expected
    assert page["total"] == len(expected)
    assert page["next"] is None


def test_only_the_fields_that_were_asked_for(place: Any) -> None:
    items = place.get("/jobs", fields=["name", "phase"])["items"]
    assert items[0] == {"uid": "u1", "name": "job-1", "phase": "Running"}


@pytest.mark.parametrize("order", ["submitted", "newest", "ended"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20])
def test_pages_have_every_job_once(place: Any, make_job: Any, make_snapshot: Any, order: str, limit: int) -> None:
    # Several of one moment, so that the uid decides; some have not ended.
    jobs = [make_job(n, submitted_s=n // 4, finished_s=None if n % 3 else n / 7) for n in range(20)]
    place.source.now = make_snapshot(tuple(sorted(jobs, key=lambda each: (each.submitted_s, each.uid))))
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = place.get("/jobs", order=order, limit=limit, fields="name", **cursor)
        assert len(page["items"]) <= limit
        found += [each["uid"] for each in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert sorted(found) == sorted(each.uid for each in jobs)


@given(st.floats(-1e9, 2e9), st.sampled_from(sorted(_PLACES)))
def test_a_cursor_says_where_its_job_stands(seconds: float, order: str) -> None:
    from operators.api.model.snapshot import Job

    place = _PLACES[order](Job("u-1", "j", "", seconds, finished_s=seconds))
    assert _after(_cursor(place)) == place


def test_a_jobs_story_and_its_steps(place: Any) -> None:
    story = place.get("/jobs/u1")
    assert story["job"]["name"] == "job-1"
    assert story["runs"][0]["devices"] == ["w1/0"]
    assert story["conditions"][0]["type"] == "Accepted"
    assert story["notes"] == ["a note"]
    assert place.get("/jobs/u1/steps") == {
        "uid": "u1",
        "steps": None,
        "progress": [{"from_s": 2.0, "to_s": 4.0, "from_step": 0, "to_step": 5, "node": "w1"}],
    }


def test_queue_and_occupancy_of_a_window(place: Any) -> None:
    queue = place.get("/queue")
    assert (queue["since_s"], queue["until_s"]) == (1.0, 10.0)  # something goes on, so until now
    assert queue["devices"] == 3
    assert queue["run"] is None
    assert place.get("/queue", since_s=5, until_s=3)["waiting"]["times_s"] == []
    spans = place.get("/occupancy")["spans"]
    assert [(span["device"], span["job"], span["to_s"]) for span in spans] == [
        ("w1/0", "u1", None),
        ("w2/0", "u3", 7.0),
    ]
    assert [span["job"] for span in place.get("/occupancy", since_s=8)["spans"]] == ["u1"]
    assert place.get("/occupancy")["held_share"] == pytest.approx((8 + 3) / 27)


def test_what_came_of_groups_of_jobs(place: Any) -> None:
    summary = place.get("/metrics-summary", experiment="e")
    assert summary["all"]["finished"] == 1
    assert summary["all"]["mean_jct_s"] == 4.0
    assert summary["all"]["mean_error"] == 0.25
    (group,) = summary["groups"]
    assert (group["experiment"], group["policy"], group["cluster"]) == ("e", "", "kubernetes")
    assert len(place.get("/metrics-summary")["groups"]) == 3


def test_experiments(place: Any) -> None:
    assert [each["id"] for each in place.get("/experiments")["items"]] == ["e"]
    detail = place.get("/experiments/e")
    assert detail["experiment"]["meta"] == {"seed": "0"}
    assert [each["run"]["id"] for each in detail["runs"]] == ["e.1", "e.2"]


def test_policies_are_those_of_the_command(place: Any) -> None:
    names = [policy["name"] for policy in place.get("/policies")["items"]]
    assert {"fifo", "allox", "synergy"} <= set(names)


@pytest.mark.parametrize(
    ("path", "parameters", "expected"),
    [
        ("/jobs/nobody", {}, (404, "not-there")),
        ("/jobs/nobody/steps", {}, (404, "not-there")),
        ("/experiments/none", {}, (404, "not-there")),
        ("/queue", {"run": "none"}, (404, "not-there")),
        ("/nothing", {}, (404, "not-found")),
        ("/jobs", {"limit": 0}, (422, "input")),
        ("/jobs", {"limit": 10_001}, (422, "input")),
        ("/jobs", {"cursor": "x"}, (422, "input")),
        ("/jobs", {"phase": "Asleep"}, (422, "input")),
        ("/jobs", {"fields": "secret"}, (422, "input")),
        ("/jobs", {"unknown": "1"}, (422, "input")),
        ("/jobs", {"namespace": "UPPER"}, (422, "input")),
        ("/queue", {"since_s": "soon"}, (422, "input")),
    ],
)
def test_what_is_wrong_is_a_problem(
    place: Any, path: str, parameters: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert place.status(path, **parameters) == expected


def test_another_method_is_told_which_there_are(place: Any) -> None:
    reply = place.client.put("/api/v1/jobs", headers={"Authorization": "Bearer root-token"})
    assert (reply.status_code, reply.headers["allow"], reply.json()["code"]) == (405, "GET", "method-not-allowed")


def test_a_job_is_held_and_let_go(place: Any) -> None:
    assert place.status("/jobs/u1/suspend", method="POST")[0] == 200
    assert place.status("/jobs/u1/resume", method="POST")[0] == 200
    assert place.source.asked == [("u1", True), ("u1", False)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RefusedError("a comparison"), (409, "refused")),
        (ConflictError("somebody was faster"), (409, "conflict")),
        (ApiAwayError("away"), (503, "api-away")),
        (ClusterError("denied"), (502, "cluster")),
    ],
)
def test_why_a_job_is_not_held(place: Any, error: Exception, expected: tuple[int, str]) -> None:
    place.source.refusal = error
    assert place.status("/jobs/u1/suspend", method="POST") == expected


def test_an_error_that_passes_says_when_to_come_again(place: Any) -> None:
    place.access.failure = ApiAwayError("away")
    reply = place.client.get("/api/v1/nodes", headers={"Authorization": "Bearer root-token"})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")


def test_probes(place: Any) -> None:
    assert place.client.get("/readyz").status_code == 200
    place.source.missing = "the first list of nodes"
    reply = place.client.get("/readyz")
    assert (reply.status_code, reply.text) == (503, "waiting for the first list of nodes\n")


def test_a_source_that_has_ended_is_not_healthy(place: Any) -> None:
    assert place.client.get("/healthz").status_code == 503  # the tests' own one ends at once


def test_the_document_is_complete(place: Any) -> None:
    document = place.client.get("/api/v1/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"], where
            assert "401" in operation["responses"], where
            assert operation["responses"]["401"]["content"]["application/json"]["example"]["status"] == 401
            assert operation["security"], where
    text = json.dumps(document)
    assert "HTTPValidationError" not in text
