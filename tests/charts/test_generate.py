"""The generated files are current, and the generator says what it can't know."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

CHARTS = Path(__file__).parents[2] / "charts"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    specification = importlib.util.spec_from_file_location("charts_generate", CHARTS / "generate.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["charts_generate"] = module
    specification.loader.exec_module(module)
    return module


def test_schema_and_table_are_current(generate: ModuleType) -> None:
    for path, text in generate.outputs().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python charts/generate.py"


def test_every_value_has_a_meaning(generate: ModuleType) -> None:
    values = generate.read_values((CHARTS / "emugpu" / "values.yaml").read_text(encoding="utf-8"))
    assert [".".join(value.path) for value in values if not value.comment] == []


def test_the_schema_is_closed_everywhere() -> None:
    def opened(node: Any, place: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        inner = [found for key, value in node.items() for found in opened(value, f"{place}/{key}")]
        return inner + ([place] if "properties" in node and node.get("additionalProperties") is not False else [])

    schema = json.loads((CHARTS / "emugpu" / "values.schema.json").read_text(encoding="utf-8"))
    assert [place for place in opened(schema, "") if not place.endswith("/properties")] == []


def test_a_comment_belongs_to_the_value_below_it(generate: ModuleType) -> None:
    text = '# The file.\n\n# About a.\na:\n  # About b,\n  # twice.\n  # @schema {"minimum": 1}\n  b: 2\n'
    a, b = generate.read_values(text)
    assert (a.path, a.comment, a.is_section) == (("a",), "About a.", True)
    assert (b.path, b.comment, b.extra) == (("a", "b"), "About b, twice.", {"minimum": 1})
    definition = yaml.safe_load((CHARTS / "emugpu" / "crds" / "emugpupools.yaml").read_text(encoding="utf-8"))
    schema = generate.schema([a, b], definition)
    assert schema["properties"]["a"]["properties"]["b"] == {
        "description": "About b, twice.",
        "type": "integer",
        "minimum": 1,
    }


@given(st.integers(0, 20_000), st.integers(0, 200_000), st.integers(0, 3))
def test_numbers_as_text_have_a_minimum_too(generate: ModuleType, least: int, number: int, zeros: int) -> None:
    assert bool(re.fullmatch(generate.at_least(least), "0" * zeros + str(number))) == (number >= least)


def test_check_names_what_is_out_of_date(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "stale"
    monkeypatch.setattr(generate, "outputs", lambda: {stale: "new"})
    assert generate.main(["--check"]) == 1
    assert "stale: is out of date; run python charts/generate.py" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert stale.read_text(encoding="utf-8") == "new"
    assert generate.main(["--check"]) == 0
    assert generate.main(["--force"]) == 2
