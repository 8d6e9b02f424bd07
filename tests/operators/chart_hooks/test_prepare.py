"""Before an install or upgrade: which files are definitions, and what is said of others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from operators.chart_hooks.prepare import Settings as PrepareSettings
from operators.chart_hooks.prepare import main as prepare_main
from operators.chart_hooks.prepare import prepare
from tests.support.fake_api import FakeApi


def test_prepare_needs_definitions_where_it_is_given_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failure() -> str:
        with pytest.raises(InputError) as caught:
            asyncio.run(prepare(FakeApi(), PrepareSettings(definitions=str(tmp_path)), lambda _text: None))
        return str(caught.value)

    assert "has no .json file; mount the chart's definitions there" in failure()
    for text, words in (
        ("{", "can't be read as JSON"),
        ("[]", "is no CustomResourceDefinition"),
        ('{"kind":"Pod"}', "is no Custom"),
    ):
        (tmp_path / "x.json").write_text(text, encoding="utf-8")
        assert words in failure()
    (tmp_path / "x.json").write_text(json.dumps({"kind": "CustomResourceDefinition", "metadata": {}}), encoding="utf-8")
    assert "with a name" in failure()
    asyncio.run(prepare(FakeApi(), PrepareSettings(), lambda _text: pytest.fail("there is nothing to do")))
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert prepare_main([]) == 2
    assert "prepare: KUBECONFIG: names no file that exists (/nowhere)" in capsys.readouterr().err
