"""The CustomResourceDefinitions have only words that a schema knows: the API server drops others, Helm then sees a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CRDS = Path(__file__).parents[2] / "charts" / "emugpu" / "crds"
# Source: apiextensions.k8s.io/v1, JSONSchemaProps (those that a structural schema may have).
KNOWN = {
    *("type", "description", "properties", "items", "required", "enum", "default", "format", "pattern", "nullable"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "additionalProperties", "anyOf", "allOf", "oneOf", "not", "uniqueItems"),
}


def unknown(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in schema.items():
        if name not in KNOWN and not name.startswith("x-kubernetes-"):
            yield f"{path}: {name}"
        if name == "properties":
            for member, inner in value.items():
                yield from unknown(inner, f"{path}.{member}")
        elif name in ("items", "additionalProperties", "not") and isinstance(value, dict):
            yield from unknown(value, f"{path}[]")
        elif name in ("anyOf", "allOf", "oneOf"):
            for inner in value:
                yield from unknown(inner, path)


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_only_words_of_a_schema(file: Path) -> None:
    definition = yaml.safe_load(file.read_text(encoding="utf-8"))
    for version in definition["spec"]["versions"]:
        assert list(unknown(version["schema"]["openAPIV3Schema"], definition["metadata"]["name"])) == []
