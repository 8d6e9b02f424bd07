"""What the guides tell people to type exists: commands with their options, values of the chart, modules, files, links."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from emugpu.__main__ import _parser

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "README.md", ROOT / "charts" / "emugpu" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
VALUES = yaml.safe_load((ROOT / "charts" / "emugpu" / "values.yaml").read_text(encoding="utf-8"))


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """(guide, words) of the fenced or indented command lines that call `program`, with continued lines put together."""
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8").replace("\\\n", " ")
        blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        fenced = [line for block in blocks for line in block.splitlines()]
        for line in [*fenced, *re.findall(r"^    (\S.*)$", text, re.MULTILINE), *re.findall(r"`(helm [^`]*)`", text)]:
            for part in re.split(r"&&|\|", re.sub(r"\$\((.*?)\)", r"&& \1", line)):
                if part.split()[:1] == [program]:
                    yield guide.name, shlex.split(part, comments=True)[1:]


def test_emugpu_has_these_commands_and_options() -> None:
    found = [words for _, words in commands("emugpu") if "..." not in words]
    assert len(found) >= 10
    for words in found:
        _parser(words[0]).parse_args(words)


def test_an_existing_cluster_is_told_an_image() -> None:
    found = [words for _, words in commands("emugpu") if words[:1] == ["cluster"] and "--kubeconfig" in words]
    assert found
    assert all("--image" in words for words in found)


def test_no_chart_is_installed_from_a_checkout_without_saying_where_images_are() -> None:
    found = [(guide, words) for guide, words in commands("helm") if words[:3] == ["install", "emugpu", "charts/emugpu"]]
    assert {guide for guide, _ in found} == {"README.md", "install.md"}
    for guide, words in found:
        given = [value.partition("=")[0] for flag, value in itertools.pairwise(words) if flag == "--set"]
        assert {"image.repository", "redis.image.repository", "redis.image.tag"} <= set(given), guide


def test_values_that_are_named_exist() -> None:
    sections = "|".join(VALUES)
    for guide in GUIDES:
        for name in re.findall(rf"[`\s]((?:{sections})\.[A-Za-z.]+)[=`:]", guide.read_text(encoding="utf-8")):
            value: Any = VALUES
            for part in name.split("."):
                assert part in value, f"{guide.name}: {name}"
                value = value[part]


def test_modules_that_are_run_exist() -> None:
    named = {
        name for guide in GUIDES for name in re.findall(r"python3? -m ([\w.]+)", guide.read_text(encoding="utf-8"))
    }
    assert {"emulator_runtime.workloads", "operators.chart_hooks.cleanup"} <= named
    for name in named:
        found = find_spec(name)
        is_package = found is not None and found.submodule_search_locations is not None
        assert found is not None, name
        assert not is_package or find_spec(f"{name}.__main__") is not None, name


def test_tools_are_run_with_what_they_need() -> None:
    """From a fresh checkout `python` finds nothing of ours."""
    found = 0
    for guide in [*GUIDES, ROOT / "CONTRIBUTING.md", *(ROOT / "examples").rglob("README.md")]:
        text = guide.read_text(encoding="utf-8")
        for call in re.finditer(r"(?<!bin/)python3? tools/", text):
            found += 1
            assert ". .venv/bin/activate" in text[: call.start()], guide
    assert found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(ROOT)))
def test_links_and_files_are_there(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in link or (guide.parent / link).exists(), link
    for path in re.findall(r"(?:-f|apply --server-side -f) ((?:examples|charts|images)/\S+)", text):
        assert (ROOT / path).exists(), path


def test_namespaces_are_the_same_everywhere() -> None:
    for program in ("helm", "kubectl"):
        for guide, words in commands(program):
            for flag, name in itertools.pairwise(words):
                if flag in ("-n", "--namespace"):
                    assert name == "emugpu-system", f"{guide}: {' '.join(words)}"


def test_each_example_on_kubernetes_is_applied_by_a_case() -> None:
    cases = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "e2e" / "cases").rglob("test_*.py"))
    examples = [path.name for path in (ROOT / "examples" / "kubernetes").iterdir() if path.is_dir()]
    assert len(examples) > 10
    assert [name for name in examples if not re.search(rf'"{name}["/]', cases)] == []
