"""Topologies as documents."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.prediction.network.topology import RING, Topology, read_topology


def read(**members: object) -> Topology:
    return read_topology(Field("file", "", members))


def test_a_document_has_any_of_the_fields() -> None:
    assert read() == Topology()
    found = read(
        gpus_per_node=4, nvlink_domain=72, network_gbps=400, oversubscription=2, nodes_per_rack=18, algorithms=[RING]
    )
    assert found == Topology(4, None, 72, 18, 400.0, oversubscription=2.0, algorithms=("ring",))
    assert found.network_bytes_per_s == 50e9
    assert found.rack_bytes_per_s == 18 * 50e9 / 2
    assert Topology().rack_bytes_per_s == float("inf")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"gpus_per_node": 0}, "file: gpus_per_node: must be from 1"),
        ({"network_gbps": 0}, "file: network_gbps: must be > 0"),
        ({"oversubscription": 0.5}, "file: oversubscription: must be >= 1"),
        ({"rack_latency_us": -1}, "file: rack_latency_us: must be >= 0"),
        ({"speed": 1}, "file: unknown field 'speed'"),
        ({"algorithms": ["rings"]}, "unknown algorithm 'rings'"),
        ({"algorithms": ["tree"]}, "file: algorithms: must have ring"),
    ],
)
def test_a_wrong_field_is_named(members: dict[str, object], message: str) -> None:
    with pytest.raises(EmuGpuError, match=message):
        read(**members)


def test_nodes_alone_divide_the_ranks() -> None:
    assert Topology(nodes=2).placed(8).gpus_per_node == 4
    assert Topology(nodes=3).placed(8).gpus_per_node == 3
    assert Topology(nodes=4, gpus_per_node=8).placed(8).gpus_per_node == 8
    assert Topology().placed(8).gpus_per_node is None
    with pytest.raises(InputError, match="2 nodes of 2 GPUs have no room for the 8 ranks"):
        Topology(nodes=2, gpus_per_node=2).placed(8)
