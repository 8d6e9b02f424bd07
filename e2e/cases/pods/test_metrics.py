"""Metrics for Prometheus: busy devices with the pods that use them, and allocated requests."""

from __future__ import annotations

import re

import pytest

from e2e.cases.kube import SYSTEM, Kubectl, Node, eventually, train_pod

pytestmark = pytest.mark.alone


def scrape(admin: Kubectl, node: str, port: int) -> str:
    pods = admin.within(SYSTEM).list("pods", "-l", "app.kubernetes.io/component=node")
    (pod,) = [p["metadata"]["name"] for p in pods if p["spec"]["nodeName"] == node]
    return admin("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy/metrics")


def test_a_working_device_is_seen(kubectl: Kubectl, admin: Kubectl, workers: list[Node]) -> None:
    node = workers[0].name
    args = ("--step-time-s", "0.1", "--memory", "4GiB", "--steps", "100000")
    kubectl.apply(train_pod("busy", *args, nodeSelector={"kubernetes.io/hostname": node}))
    kubectl.wait_phase("busy", "Running")

    def busy() -> str | None:
        text = scrape(admin, node, 9400)
        values = re.findall(r"^emugpu_device_utilisation_ratio\{[^}]*\} (\S+)$", text, re.MULTILINE)
        return text if sorted(map(float, values))[-1:] > [0.9] else None

    text = eventually("a device is busy", busy, show=False)
    ratios = re.findall(r"^emugpu_device_utilisation_ratio\{[^}]*\} (\S+)$", text, re.MULTILINE)
    assert len(ratios) == 8
    assert sum(float(ratio) > 0.5 for ratio in ratios) == 1
    process = re.search(r"^emugpu_process_memory\w*_bytes\{([^}]*)\} (\S+)$", text, re.MULTILINE)
    assert process, text
    assert 'pod="busy"' in process[1]
    assert f'namespace="{kubectl.namespace}"' in process[1]
    assert float(process[2]) == 4 * 2**30
    plugin = scrape(admin, node, 9401)
    assert re.search(r"^emugpu_plugin_\w*allocate\w*_count\S* [1-9]", plugin, re.MULTILINE), plugin
