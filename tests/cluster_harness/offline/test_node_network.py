"""Routes between nodes and a DNS configuration that works without an outside resolver."""

from __future__ import annotations

import pytest

from cluster_harness.nodes import kubectl as kubectl_module
from cluster_harness.nodes.kubectl import Node, parse_node
from cluster_harness.offline.node_network import connect, local_corefile, routes
from emulator_runtime.domain.errors import ClusterError

COREFILE = """.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
    }
    loop
    loadbalance
}
"""


def node(name: str, index: int, *, pod_range: bool = True) -> dict[str, object]:
    return {
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/control-plane": ""} if index == 1 else {}},
        "spec": {"podCIDR": f"10.244.{index}.0/24"} if pod_range else {},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": f"172.18.0.{index}"},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "2", "emugpu.dev/emuGPU": "8"},
        },
    }


def test_forward_and_loop_go_the_rest_stays() -> None:
    after = local_corefile(COREFILE)
    assert "forward" not in after and "loop\n" not in after and "max_concurrent" not in after
    assert "pods insecure" in after and "loadbalance" in after and "disable success" in after
    assert after.count("{") == after.count("}") == 3
    assert local_corefile(after) == after


def test_forward_on_one_line() -> None:
    assert local_corefile(". {\n    forward . 10.0.0.1\n    errors\n}\n") == ". {\n    errors\n}\n"


def test_a_node_gets_the_way_to_all_others() -> None:
    nodes = [parse_node(node(f"n{index}", index)) for index in (1, 2, 3)]
    assert routes(nodes[1], nodes) == (
        "route replace 10.244.1.0/24 via 172.18.0.1\nroute replace 10.244.3.0/24 via 172.18.0.3\n"
    )
    assert nodes[0] == Node(
        *("n1", nodes[0].uid, nodes[0].labels),
        control_plane=True,
        allocatable={"emugpu.dev/emuGPU": 8},
        address="172.18.0.1",
        pod_range="10.244.1.0/24",
    )


def test_nodes_get_routes_and_dns_works_without_a_resolver(shell, kubectl, machine, make_node) -> None:  # type: ignore[no-untyped-def]
    machine.corefile = COREFILE
    for index in (1, 2):
        machine.add_nodes(make_node(f"n{index}", pod_range=f"10.244.{index}.0/24", address=f"172.18.0.{index}"))
    connect(kubectl, shell, 2)
    assert {node.name: node.routes for node in machine.nodes.values()} == {
        "n1": "route replace 10.244.2.0/24 via 172.18.0.2\n",
        "n2": "route replace 10.244.1.0/24 via 172.18.0.1\n",
    }
    assert (machine.corefile, machine.dns_restarts) == (local_corefile(COREFILE), 1)
    connect(kubectl, shell, 2)
    assert machine.dns_restarts == 1, "a configuration that is right already stays"


def test_a_node_without_a_pod_range_is_named(  # type: ignore[no-untyped-def]
    shell, kubectl, machine, make_node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_harness.offline.node_network._REGISTERED_TIMEOUT_S", 0.0)
    monkeypatch.setattr(kubectl_module, "sleep_ns", lambda _duration: None)
    machine.add_nodes(make_node("n1", pod_range="10.244.1.0/24", address="172.18.0.1"), make_node("n2"))
    with pytest.raises(ClusterError, match=r"pod ranges: not after 0 s: 2 of 3 nodes, no range: \['n2'\]"):
        connect(kubectl, shell, 3)
