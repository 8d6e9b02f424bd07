"""What nodes offer: the pool's emulated amounts or the machine's own, and the devices that pods can ask for."""

from __future__ import annotations

from typing import Any

from emulator_runtime.domain.gpu import USABLE_MEMORY_FRACTION
from emulator_runtime.domain.units import GIB, MIB
from operators.fitting.offers import offers_of
from operators.objects.node import Node
from operators.objects.pool import Pool

V100 = "Tesla_V100-PCIE-32GB"


def pool(name: str = "p", **spec: Any) -> Pool:
    return Pool(name, name, "2026-01-01T00:00:00Z", spec_json={"gpus": [{"type": "V100", "count": 2}], **spec})


def test_emulated_amounts_take_the_place_of_the_machines_own() -> None:
    document = {"metadata": {"name": "w1"}, "status": {"capacity": {"cpu": "7500m", "memory": "16Gi"}}}
    node = Node.read(document)
    assert (node.cpu_milli, node.memory_bytes) == (7500, 16 * GIB)
    (own,) = offers_of([pool()], [node])
    assert (own.node, own.cpu_milli, own.memory_bytes) == ("w1", 7500, 16 * GIB)
    assert own.devices == ((V100, int(32510 * MIB * USABLE_MEMORY_FRACTION)),) * 2
    (half,) = offers_of([pool(emulated={"cpu": 24})], [node])
    assert (half.cpu_milli, half.memory_bytes) == (24_000, 16 * GIB)
    (whole,) = offers_of([pool(emulated={"cpu": "24", "memory": "100Gi"})], [node])
    assert (whole.cpu_milli, whole.memory_bytes) == (24_000, 100 * GIB)


def test_nodes_without_gpus_offer_what_their_pool_says() -> None:
    (bare,) = offers_of([pool(gpus=[], emulated={"cpu": 90, "memory": "400Gi"})], [Node("w1", "u")])
    assert (bare.cpu_milli, bare.memory_bytes, bare.devices) == (90_000, 400 * GIB, ())


def test_shared_devices_count_as_often_and_other_resources_not() -> None:
    sharing = {"timeSlicing": {"resources": [{"name": "emugpu.dev/emuGPU", "replicas": 3}]}}
    (shared,) = offers_of([pool(sharing=sharing)], [Node("w1", "u")])
    assert len(shared.devices) == 6
    (other,) = offers_of([pool(resourceName="nvidia.com/gpu")], [Node("w1", "u")])
    assert other.devices == ()
    assert offers_of([pool(nodeSelector={"matchLabels": {"a": "b"}})], [Node("w1", "u")]) == ()
