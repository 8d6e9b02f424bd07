"""From a pool's specification to types: what is filled in, what is refused and where the message points."""

from __future__ import annotations

from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.node.fields import Field
from operators.objects.pool import parse_spec
from operators.objects.selector import parse_selector

A100 = {"type": "A100-SXM4-80GB", "count": 8}


def test_aliases_memory_and_links_are_resolved() -> None:
    spec = parse_spec("p", {"gpus": [{"type": "v100", "count": 2, "memory": "16Gi"}, A100]})
    v100, a100 = spec.groups
    assert v100.gpu.gpu_type == "Tesla_V100-PCIE-32GB"
    assert (v100.memory_bytes, v100.link_group_size) == (16 * 2**30, 1)
    assert (a100.memory_bytes, a100.link_group_size) == (a100.gpu.memory_bytes, 8)
    assert {group.resource for group in spec.groups} == {"emugpu.dev/emuGPU"}


def test_everything_can_be_said() -> None:
    spec = parse_spec(
        "p",
        {
            "resourceName": "example.com/gpu",
            "gpus": [
                {**A100, "memory": 2**30, "linkGroupSize": 4, "numaNodes": 2},
                {**A100, "resourceName": "nvidia.com/gpu"},
            ],
            "compat": {"nvidiaLabels": True, "nvidiaEnv": True},
            "unhealthy": [{"node": "w1", "index": 3, "reason": "ECC"}, {"node": "w2", "index": 0}],
            "nodeSelector": {"matchLabels": {"zone": "a"}},
            "emulated": {"cpu": 24, "memory": "100Gi"},
        },
    )
    assert (spec.cpu_milli, spec.memory_bytes) == (24_000, 100 * 2**30)
    assert [(g.resource, g.memory_bytes, g.link_group_size, g.numa_nodes) for g in spec.groups] == [
        ("example.com/gpu", 2**30, 4, 2),
        ("nvidia.com/gpu", spec.groups[1].gpu.memory_bytes, 8, 1),
    ]
    assert spec.compat.nvidia_env and spec.nvidia_labels
    assert spec.unhealthy == {("w1", 3): "ECC", ("w2", 0): "marked unhealthy in the pool"}
    assert spec.selector.matches({"zone": "a"}) and not spec.selector.matches({})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {},
            "EmuGPUPool p: spec: gpus must name at least one GPU type; a pool without GPUs needs emulated.cpu or .memory",
        ),
        ({"gpus": []}, "EmuGPUPool p: spec: gpus must name at least one GPU type"),
        ({"emulated": {}}, "EmuGPUPool p: spec: gpus must name at least one GPU type"),
        (
            {"gpus": [A100], "resourceName": "emugpu.dev/host"},
            "EmuGPUPool p: spec.resourceName: emugpu.dev/host is a place on a node, no GPU; write another name",
        ),
        (
            {"gpus": [{"type": "A10O", "count": 1}]},
            "EmuGPUPool p: spec.gpus[0].type: unknown GPU type 'A10O'; did you mean A10G or A100",
        ),
        ({"gpus": [{"type": "V100"}]}, "EmuGPUPool p: spec.gpus[0]: count is missing"),
        ({"gpus": [{**A100, "count": 0}]}, "EmuGPUPool p: spec.gpus[0].count: must be from 1 to 64, got 0"),
        ({"gpus": [{**A100, "memory": "80GB"}]}, "EmuGPUPool p: spec.gpus[0].memory: '80GB' is no quantity"),
        ({"gpus": [{**A100, "memory": "0"}]}, "EmuGPUPool p: spec.gpus[0].memory: must be at least one byte, got 0"),
        (
            {"gpus": [{**A100, "linkGroupSize": 9}]},
            "EmuGPUPool p: spec.gpus[0].linkGroupSize: must be from 1 to 8, got 9",
        ),
        (
            {"gpus": [A100], "resourceName": "emuGPU"},
            "EmuGPUPool p: spec.resourceName: 'emuGPU' is no name of an extended",
        ),
        ({"gpus": [A100], "gpu": []}, "EmuGPUPool p: spec: unknown field 'gpu'; did you mean gpus"),
        ({"gpus": [A100], "sharing": []}, "EmuGPUPool p: spec.sharing: must be an object with timeSlicing"),
        ({"gpus": [A100], "unhealthy": [{"index": 1}]}, "EmuGPUPool p: spec.unhealthy[0]: node is missing"),
        (
            {"gpus": [A100], "emulated": {"cpu": "0"}},
            "EmuGPUPool p: spec.emulated.cpu: must be at least one thousandth of a CPU, got 0",
        ),
        ({"gpus": [A100], "emulated": {"memory": "x"}}, "EmuGPUPool p: spec.emulated.memory: 'x' is no quantity"),
        ({"gpus": [A100], "emulated": {"gpu": 1}}, "EmuGPUPool p: spec.emulated: unknown field 'gpu'"),
        ({"gpus": [A100], "compat": {"nvidiaEnv": 1}}, "EmuGPUPool p: spec.compat.nvidiaEnv: must be true or false"),
        (None, "EmuGPUPool p: spec: must be an object"),
    ],
)
def test_mistakes_are_named_with_their_place(spec: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec("p", spec)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("operator", "values", "labels", "matches"),
    [
        ("In", ["a"], {"k": "a"}, True),
        ("In", ["a"], {"k": "b"}, False),
        ("In", ["a"], {}, False),
        ("NotIn", ["a"], {"k": "b"}, True),
        ("NotIn", ["a"], {"k": "a"}, False),
        ("NotIn", ["a"], {}, True),
        ("Exists", [], {"k": ""}, True),
        ("Exists", [], {}, False),
        ("DoesNotExist", [], {}, True),
        ("DoesNotExist", [], {"k": ""}, False),
    ],
)
def test_selector_operators(operator: str, values: list[str], labels: dict[str, str], matches: bool) -> None:
    expression = {"key": "k", "operator": operator, "values": values}
    assert parse_selector(Field("p", "s", {"matchExpressions": [expression]})).matches(labels) is matches


@pytest.mark.parametrize("expression", [{"operator": "In"}, {"operator": "Exists", "values": ["a"]}])
def test_selector_values_must_fit_the_operator(expression: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"p: s\.matchExpressions\[0\]: values: In and NotIn need at least one"):
        parse_selector(Field("p", "s", {"matchExpressions": [{"key": "k", **expression}]}))


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"matchLabels": {"a b": "x"}}, r"p: s\.matchLabels\.a b: 'a b' is no key of a label; write a name such as"),
        ({"matchLabels": {"-a": "x"}}, "'-a' is no key of a label"),
        ({"matchLabels": {"Example.com/a": "x"}}, "is no key of a label"),
        ({"matchLabels": {f"{'a' * 254}/b": "x"}}, "is no key of a label"),
        ({"matchLabels": {"zone": "a b"}}, r"p: s\.matchLabels\.zone: 'a b' is no value of a label; write 63 letters"),
        ({"matchLabels": {"zone": "a" * 64}}, "is no value of a label"),
        (
            {"matchExpressions": [{"key": "a/b/c", "operator": "Exists"}]},
            r"matchExpressions\[0\]\.key: 'a/b/c' is no key",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c_"]}]},
            r"matchExpressions\[0\]\.values\[1\]: 'c_' is no value of a label",
        ),
    ],
)
def test_what_can_be_no_label_selects_nothing(selector: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_selector(Field("p", "s", selector))


def test_every_label_can_be_selected() -> None:
    labels = {"kubernetes.io/hostname": "w1", "A_b.c": "", f"{'a' * 253}/{'b' * 63}": "c" * 63}
    assert parse_selector(Field("p", "s", {"matchLabels": labels})).matches(labels)


def test_selector_operator_must_be_known() -> None:
    with pytest.raises(UnknownNameError, match="did you mean In"):
        parse_selector(Field("p", "s", {"matchExpressions": [{"key": "k", "operator": "in"}]}))
