"""Generates the chart's CustomResourceDefinitions, values.schema.json, files/checks.json and the table in its README, and the
API's list of policies (operators/api/replies/policies.json).

Sources: the models of the custom resources (operators/objects), values.yaml (defaults and their comments), the programs' Settings
classes (which settings there are), the runtime's GPU types, the models that have a profile, and the scheduling policies.
files/checks.json is for templates/checks.yaml: GPU types may be typed in any case, which an enum can't express, and a schema's
error about a key has no place. `python charts/generate.py --check` only reports what is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from deviceplugin.settings import Settings as PluginSettings
from emugpu.commands.policies import describe_policies
from emulator_runtime.node.settings import EnvSettings
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.table import ProfileTable
from operators.objects.custom_resource import Definition
from operators.objects.emujob import EmuJob
from operators.objects.experiment import Experiment
from operators.objects.pool import Pool
from sharing_manager.settings import Settings as ManagerSettings

CHART = Path(__file__).parent / "emugpu"
POLICIES = Path(__file__).parent.parent / "operators" / "api" / "replies" / "policies.json"
BEGIN, END = "<!-- values: begin (python charts/generate.py) -->", "<!-- values: end -->"

# What the chart sets itself from other values, or what has no meaning in a cluster.
MANAGER_OWN = {
    "node",
    "node_dir",
    "inventory",
    "kubernetes",
    "pod",
    "pod_resources",
    "redis_url",
    "ranks_key",
    "metrics_port",
    "tools",
}
MANAGER_LOCAL = {"socket_dir", "state_dir", "clock", "sharing", "resources", "sharing_config", "lifeline_fd"}
POOL_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"  # of an object; source: RFC 1123
PLUGIN_OWN = {"node_dir", "kubelet_dir", "metrics_port", "cdi_dir"}

DEFINITIONS = {
    "emugpupools": Pool.DEFINITION,
    "emujobs": EmuJob.DEFINITION,
    "schedulingexperiments": Experiment.DEFINITION,
}
FIRST = ("description", "type", "format", "required", "default", "enum")  # of a schema's keywords, for readers
SCALARS = {"tag:yaml.org,2002:str": "string", "tag:yaml.org,2002:int": "integer", "tag:yaml.org,2002:bool": "boolean"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """One value of values.yaml: its path, default, comment and what `# @schema` says beyond its default."""

    path: tuple[str, ...]
    node: yaml.Node
    comment: str
    extra: Json

    @property
    def is_section(self) -> bool:
        """Whether its members are values of their own."""
        return isinstance(self.node, yaml.MappingNode) and bool(self.node.value) and not self.extra


def read_values(text: str) -> list[Value]:
    """All values in the order of the file, sections before their members."""
    root, lines = yaml.compose(text), text.splitlines()
    assert isinstance(root, yaml.MappingNode)
    return list(_values((), root, lines))


def _values(path: tuple[str, ...], mapping: yaml.MappingNode, lines: list[str]) -> Iterator[Value]:
    for key, node in mapping.value:
        comment, extra = _comment(lines, key.start_mark.line)
        value = Value((*path, key.value), node, comment, extra)
        yield value
        if value.is_section:
            yield from _values(value.path, node, lines)


def _comment(lines: list[str], line: int) -> tuple[str, Json]:
    """The comment lines right above `line`."""
    found: list[str] = []
    extra: Json = {}
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        text = lines[line].lstrip().removeprefix("#").strip()
        if text.startswith("@schema "):
            extra = json.loads(text.removeprefix("@schema "))
        else:
            found.insert(0, text)
    return " ".join(found), extra


def schema(values: list[Value], definition: Json) -> Json:
    """JSON Schema of the values: a name that isn't there is a mistake, everywhere."""
    root: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": {"global": {"description": "Helm's own.", "type": "object"}},
        "$defs": _definitions(definition),
    }
    for value in values:
        owner = root
        for key in value.path[:-1]:
            owner = owner["properties"][key]
        owner["properties"][value.path[-1]] = _property(value)
    return root


def _property(value: Value) -> Json:
    described = {"description": value.comment}
    if "$ref" in value.extra:
        return described | value.extra
    if value.is_section:
        return {**described, "type": "object", "additionalProperties": False, "properties": {}}
    if isinstance(value.node, yaml.MappingNode):
        return {**described, "type": "object", **value.extra}
    if isinstance(value.node, yaml.SequenceNode):
        return {**described, "type": "array", **value.extra}
    return {**described, "type": SCALARS[value.node.tag], **value.extra}


def _definitions(definition: Json) -> Json:
    name = {"type": "string", "minLength": 1}
    quantities = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number"]}}
    pool = _plain(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    own_name = {"description": "Name of the pool.", **name, "maxLength": 63, "pattern": POOL_NAME}
    pool["properties"] = {"name": own_name, **pool["properties"]}
    pool["properties"]["gpus"]["items"]["properties"]["type"]["examples"] = gpu_types()
    pool["required"] = ["name", *pool.get("required", ())]
    variable = {"name": name, "value": {"type": "string"}, "valueFrom": {"type": "object"}}
    return {
        "pool": pool,
        "model": {"type": "string", "enum": [*ProfileTable.bundled().models]},
        "managerSettings": _settings(ManagerSettings, MANAGER_OWN | MANAGER_LOCAL),
        "pluginSettings": _settings(PluginSettings, PLUGIN_OWN),
        "resources": _object({"requests": quantities, "limits": quantities, "claims": {"type": "array"}}),
        "networkPeer": _network_peer(),
        "env": {"type": "array", "items": {**_object(variable), "required": ["name"]}},
    }


def gpu_types() -> list[str]:
    """All names of GPU types, each type's own before its short ones; case and `-`, `_` or a space make no difference."""
    catalogue = bundled_catalogue()
    return [name for gpu_type in catalogue.specs for name in (gpu_type, *catalogue.short_names(gpu_type))]


def _network_peer() -> Json:
    """Source: NetworkPolicyPeer of networking.k8s.io/v1; which of them go together is left to the API server."""
    texts = {"type": "array", "items": {"type": "string"}}
    operator = {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]}
    requirement = _object({"key": {"type": "string"}, "operator": operator, "values": texts})
    expressions = {"type": "array", "items": {**requirement, "required": ["key", "operator"]}}
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    selector = _object({"matchLabels": labels, "matchExpressions": expressions})
    block = {**_object({"cidr": {"type": "string"}, "except": texts}), "required": ["cidr"]}
    return {**_object({"podSelector": selector, "namespaceSelector": selector, "ipBlock": block}), "minProperties": 1}


def _object(properties: Json) -> Json:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _settings(program: type[EnvSettings], left_out: set[str]) -> Json:
    known = [f for f in fields(program) if f.name not in left_out]
    return _object({f.name.upper(): {"description": f.metadata["help"], **_kinds(f)} for f in known})


def _kinds(setting: Field[Any]) -> Json:
    """A number may be written as text, for which JSON Schema knows no minimum; empty: the program's default."""
    kinds: Json = {"type": ["string", "integer"]}
    if isinstance(setting.default, bool):
        return kinds | {"minimum": 0, "maximum": 1, "pattern": "^$|^(0|1)$"}
    if not isinstance(setting.default, int):
        return kinds
    least = setting.metadata["least"]
    return kinds | {"minimum": least, "pattern": f"^$|^{at_least(least)}$"}


def at_least(least: int) -> str:
    """A regular expression of the whole numbers from `least`: one of more digits, or one whose first greater digit is at i."""
    digits = str(least)
    greater = [
        f"{digits[:i]}[{int(digit) + 1}-9][0-9]{{{len(digits) - i - 1}}}"
        for i, digit in enumerate(digits)
        if digit != "9"
    ]
    return f"0*({'|'.join((f'[1-9][0-9]{{{len(digits)},}}', *greater, digits))})"


def _plain(node: Json) -> Json:
    """A part of the definition as JSON Schema: without Kubernetes' own words, and closed."""
    kept = {
        key: value
        for key, value in node.items()
        if not key.startswith("x-kubernetes-") and key not in ("format", "default")
    }
    if node.get("x-kubernetes-int-or-string"):
        kept = {"description": node["description"], "type": ["string", "integer"]}
    if "properties" in kept:
        kept["properties"] = {name: _plain(value) for name, value in kept["properties"].items()}
        kept["additionalProperties"] = False
    if "items" in kept:
        kept["items"] = _plain(kept["items"])
    return kept


def checks(definition: Json) -> Json:
    """What the chart's own checks compare values with."""
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    key = spec["properties"]["nodeSelector"]["properties"]["matchExpressions"]["items"]["properties"]["key"]
    return {"gpuTypes": gpu_types(), "labelKey": key["pattern"]}


class _Dumper(yaml.SafeDumper):
    """Without anchors, which readers have to look up."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def definition_file(definition: Definition) -> str:
    """The file in crds/. The API server drops keywords that it doesn't know, so there are none of ours."""
    head = (
        f"# Generated from operators/objects by `python charts/generate.py`: {definition.description}\n"
        "# Upgrades of the chart apply this file too (templates/hooks/prepare.yaml).\n"
    )
    return head + yaml.dump(
        _sorted(definition.document()), Dumper=_Dumper, sort_keys=False, width=130, allow_unicode=True
    )


def _sorted(node: Any) -> Any:
    if isinstance(node, list):
        return [_sorted(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _sorted(node[name])
        for name in sorted(node, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    }


def table(values: list[Value]) -> str:
    """The values as a Markdown table."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for value in values:
        default = "" if value.is_section else f"`{_default(value.node)}`"
        rows.append(f"| `{'.'.join(value.path)}` | {default} | {value.comment.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def _default(node: yaml.Node) -> str:
    return json.dumps(yaml.safe_load(yaml.serialize(node)))


def outputs() -> dict[Path, str]:
    """The generated files' contents by path."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    definition = _sorted(Pool.DEFINITION.document())
    values, readme = read_values(text), CHART / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {
        CHART / "values.schema.json": json.dumps(schema(values, definition), indent=1) + "\n",
        CHART / "files" / "checks.json": json.dumps(checks(definition), indent=1) + "\n",
        **{CHART / "crds" / f"{name}.yaml": definition_file(made) for name, made in DEFINITIONS.items()},
        POLICIES: json.dumps(describe_policies(), indent=2) + "\n",
        readme: f"{before}{BEGIN}\n\n{table(values)}\n\n{END}{after}",
    }


def main(argv: list[str]) -> int:
    if argv not in ([], ["--check"]):
        print("usage: python charts/generate.py [--check]", file=sys.stderr)
        return 2
    stale = [path for path, text in outputs().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if argv:
            print(f"{path}: is out of date; run python charts/generate.py", file=sys.stderr)
        else:
            path.write_text(outputs()[path], encoding="utf-8")
    return 1 if argv and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
