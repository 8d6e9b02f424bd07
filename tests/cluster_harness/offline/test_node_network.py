"""Routes between nodes and a DNS configuration that works without an outside resolver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster_harness import kubectl as kubectl_module
from cluster_harness.kubectl import Kubectl, Node, parse_node
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
        "n1", "172.18.0.1", "10.244.1.0/24", True, True, nodes[0].labels, {"cpu": "2", "emugpu.dev/emuGPU": "8"}
    )


def test_connect_tells_each_node_and_coredns(make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell(
        {
            "get nodes": json.dumps({"items": [node("n1", 1), node("n2", 2)]}),
            "configmap coredns": json.dumps({"data": {"Corefile": COREFILE}}),
        }
    )
    connect(Kubectl(shell, Path("kubectl"), Path("k")), shell, 2)
    told = {line.split()[3]: text for line, text in shell.inputs.items() if line.startswith("docker exec -i")}
    assert told == {
        "n1": "route replace 10.244.2.0/24 via 172.18.0.2\n",
        "n2": "route replace 10.244.1.0/24 via 172.18.0.1\n",
    }
    (replaced,) = [text for line, text in shell.inputs.items() if " replace " in line]
    assert json.loads(replaced)["data"]["Corefile"] == local_corefile(COREFILE)
    assert shell.count("delete pods -l k8s-app=kube-dns") == 1


def test_a_node_without_a_pod_range_is_named(monkeypatch: pytest.MonkeyPatch, make_shell) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("cluster_harness.offline.node_network._REGISTERED_TIMEOUT_S", 0.0)
    monkeypatch.setattr(kubectl_module, "sleep_ns", lambda _duration: None)
    shell = make_shell({"get nodes": json.dumps({"items": [node("n1", 1), node("n2", 2, pod_range=False)]})})
    with pytest.raises(ClusterError, match=r"pod ranges: not after 0 s: 2 of 3 nodes, no range: \['n2'\]"):
        connect(Kubectl(shell, Path("kubectl"), Path("k")), shell, 3)
