"""The shared table of rules: this program's validation and the API server's refuse and accept the same specifications."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from operators.objects import emujob, experiment, pool
from operators.objects.custom_resource import Definition
from tests.support.api_server import ApiServer
from tests.support.yaml_documents import document_of

TABLE = document_of(Path(__file__).with_name("validation_cases.yaml"))
DEFINITIONS: dict[str, Definition] = {
    each.kind: each for each in (emujob.EmuJob.DEFINITION, pool.Pool.DEFINITION, experiment.Experiment.DEFINITION)
}
PARSERS: dict[str, Callable[[Any], object]] = {
    "EmuJob": lambda spec: emujob.parse_spec("lab", "j", spec),
    "EmuGPUPool": lambda spec: pool.parse_spec("p", spec),
    "SchedulingExperiment": lambda spec: experiment.parse_spec(spec, "SchedulingExperiment lab/e"),
}
NAMES = {"EmuJob": "EmuJob lab/j", "EmuGPUPool": "EmuGPUPool p", "SchedulingExperiment": "SchedulingExperiment lab/e"}


def cases() -> Iterator[Any]:
    for kind, rows in TABLE.items():
        for row in rows:
            title = f"{kind}: {row.get('python', 'accepted')}: {json.dumps(row['spec'], default=str)}"
            yield pytest.param(kind, row, id=title[:150])


@pytest.mark.parametrize(("kind", "row"), list(cases()))
def test_the_models_refuse_with_the_place_and_accept_the_rest(kind: str, row: dict[str, Any]) -> None:
    if "python" not in row:
        PARSERS[kind](row["spec"])
        return
    with pytest.raises(InputError) as caught:
        PARSERS[kind](row["spec"])
    assert str(caught.value).startswith(f"{NAMES[kind]}: {row['python']}")


@pytest.mark.parametrize(("kind", "row"), list(cases()))
def test_the_api_server_agrees(cluster: ApiServer, kind: str, row: dict[str, Any]) -> None:
    definition = DEFINITIONS[kind]
    namespace = "namespaces/default/" if definition.scope == "Namespaced" else ""
    path = f"/apis/{definition.group}/{definition.version}/{namespace}{definition.plural}"
    document = {"apiVersion": "emugpu.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": row["spec"]}
    status, reply = cluster.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", document)
    refusal = row.get("server", "accepts")
    if refusal == "accepts":
        assert status == 201, reply
        assert ("python" in row) == ("why" in row)
    else:
        assert status in (400, 422), reply
        assert refusal in reply["message"]


def test_every_rule_of_the_models_has_a_case() -> None:
    """By the message of each CEL rule, but those of transitions and names."""
    messages = {
        rule["message"]
        for definition in DEFINITIONS.values()
        for rule in _rules(
            definition.document()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        )
        if "oldSelf" not in rule["rule"]
    }
    refusals = [row["server"] for rows in TABLE.values() for row in rows if "server" in row]
    assert sorted(text for text in messages if not any(refusal in text for refusal in refusals)) == []


def _rules(schema: Any) -> Iterator[dict[str, str]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
        for inner in schema.values():
            yield from _rules(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _rules(inner)


def test_annotations_have_a_limit_together() -> None:
    """The API server's for all objects; a schema doesn't add lengths."""
    annotations = {f"a{number}": "x" * 2**14 for number in range(16)}
    spec = {"steps": 1, "stepTime": "1s", "template": {"annotations": annotations}}
    with pytest.raises(InputError, match=r"EmuJob lab/j: spec\.template.annotations: must have at most 262144 bytes"):
        emujob.parse_spec("lab", "j", spec)
