"""From a pool's specification to types: what is filled in, what is refused and where the message points."""

from __future__ import annotations

from typing import get_args

import pytest

from emulator_runtime.node.inventory import SHARING_MODES, Cuda
from operators.objects.custom_resource import read_strictly
from operators.objects.pool import Sharing, parse_spec
from operators.objects.selectors import Selector

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
            "cuda": {"enabled": True, "time": "20us"},
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
    assert spec.cuda == Cuda(enabled=True, constant_ns=20_000)
    assert spec.unhealthy == {("w1", 3): "ECC", ("w2", 0): "marked unhealthy in the pool"}
    assert spec.selector.matches({"zone": "a"}) and not spec.selector.matches({})


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
    assert read_strictly(Selector, {"matchExpressions": [expression]}, "p", "s").matches(labels) is matches


def test_every_way_to_share_is_known_to_the_schema_and_to_its_reader() -> None:
    """The CRD's enum is SHARING_MODES; a name that the model doesn't have would be offered there and refused here."""
    assert {*get_args(Sharing.model_fields["mode"].annotation)} == {"", *SHARING_MODES}
