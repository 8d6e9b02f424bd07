from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.node.settings import EnvSettings
from sharing_manager.grants.identity import PodAllocation, PodIdentity
from sharing_manager.kubernetes import border as border_module
from sharing_manager.kubernetes import connect
from sharing_manager.kubernetes.border import KubernetesBorder
from sharing_manager.kubernetes.pod_resources import PodResources
from tests.support.fake_node_api import HANG, pod_object

POD_UID = "2c48913c-b29f-11e7-9350-020968147796"
CID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
HELD = PodAllocation("default", "train", "main", "emugpu.dev/emuGPU", frozenset({"GPU-a"}))


def inventory(count: int, node: str = "n1") -> Inventory:
    devices = tuple(DeviceEntry(Device(node, index, "T", 1024)) for index in range(count))
    return Inventory(node, (ResourceEntry("emugpu.dev/emuGPU", devices),))


@pytest.fixture
def start(poller, api, kubelet, proc, pod_path):
    """`start()`: a border of process 7's node with what it has told in `.inventories` and `.allocations`."""
    borders = []

    def start(*, in_use=False, **parts):
        arguments = {"api": api, "kubelet": None, "proc": proc(7, pod_path), "poll_s": 0.05, **parts}
        border = KubernetesBorder("n1", poller, **arguments)
        border.inventories, border.allocations = [], []
        border.start(border.inventories.append, border.allocations.append, in_use=in_use)
        borders.append(border)
        return border

    yield start
    for border in borders:
        border.stop()
        border.stop()
        assert not any(thread.is_alive() for thread in border._threads)


def test_the_inventory_follows_the_annotation(fake, start, eventually) -> None:
    fake.set_node("n1", inventory(2).to_json())
    border = start()
    eventually(lambda: border.inventories == [inventory(2)])
    fake.set_node("n1", inventory(3).to_json())
    eventually(lambda: border.inventories[1:] == [inventory(3)])
    fake.set_node("n1", None)
    eventually(lambda: border.inventories[2:] == [Inventory("n1", ())])


def test_a_node_without_annotation_is_in_no_pool_but_one_not_seen_yet_is_unknown(fake, start, eventually) -> None:
    border = start()
    eventually(lambda: len(fake.requests) >= 2)
    assert border.inventories == []
    fake.set_node("n1", None)
    eventually(lambda: border.inventories == [Inventory("n1", ())])


def test_what_does_not_change_the_inventory_is_not_told_again(fake, start, eventually) -> None:
    fake.set_node("n1", None)
    border = start()
    for _ in range(3):
        fake.set_node("n1", None)
    fake.set_node("n1", inventory(1).to_json())
    fake.set_node("n1", inventory(1).to_json())
    fake.set_node("n1", inventory(2).to_json())
    eventually(lambda: border.inventories and border.inventories[-1] == inventory(2))
    assert border.inventories in (
        [Inventory("n1", ()), inventory(1), inventory(2)],
        [inventory(1), inventory(2)],
        [inventory(2)],
    )


def test_a_node_that_is_made_anew_keeps_its_devices_until_it_is_told_about_them(
    fake, start, eventually, caplog
) -> None:
    fake.set_node("n1", inventory(2).to_json())
    border = start()
    eventually(lambda: border.inventories)
    fake.delete_node("n1")
    fake.set_node("n1", None)
    eventually(lambda: "n1: was created again and has no annotation emugpu.dev/inventory yet" in caplog.text)
    fake.set_node("n1", inventory(2).to_json())
    eventually(lambda: not border.status().inventory_problem)
    fake.set_node("n1", None)  # now it is the same Node, which leaves its pool
    eventually(lambda: border.inventories == [inventory(2), Inventory("n1", ())])


def test_after_a_restart_a_node_without_annotation_yet_keeps_its_devices(fake, start, eventually, monkeypatch) -> None:
    fake.set_node("n1", None)  # made anew while the manager was away
    border = start(in_use=True)
    problem = eventually(lambda: border.status().inventory_problem)
    assert problem == "node n1: has no annotation emugpu.dev/inventory yet; its devices are kept"
    assert border.inventories == []
    fake.set_node("n1", inventory(2).to_json())
    eventually(lambda: border.inventories == [inventory(2)] and not border.status().inventory_problem)
    fake.set_node("n1", None)
    eventually(lambda: border.inventories == [inventory(2), Inventory("n1", ())])


def test_after_a_restart_a_node_that_left_its_pool_has_no_devices_in_the_end(
    fake, start, eventually, monkeypatch
) -> None:
    monkeypatch.setattr(border_module, "NEW_NODE_S", 0.2)
    fake.set_node("n1", None)
    border = start(in_use=True)
    eventually(lambda: border.status().inventory_problem)
    time.sleep(0.25)
    fake.set_node("n1", None)
    eventually(lambda: border.inventories == [Inventory("n1", ())])


def test_a_node_that_is_made_anew_outside_of_any_pool_has_no_devices_in_the_end(
    fake, start, eventually, monkeypatch
) -> None:
    monkeypatch.setattr(border_module, "NEW_NODE_S", 0.2)
    fake.set_node("n1", inventory(2).to_json())
    border = start()
    eventually(lambda: border.inventories)
    fake.delete_node("n1")
    fake.set_node("n1", None)
    eventually(lambda: border.status().inventory_problem)
    assert border.inventories == [inventory(2)]
    time.sleep(0.25)
    fake.set_node("n1", None)
    eventually(lambda: border.inventories == [inventory(2), Inventory("n1", ())])


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        ("{", r"node n1: annotation emugpu\.dev/inventory:1:2: is not JSON"),
        (inventory(1, "n2").to_json(), r"annotation emugpu\.dev/inventory: node: must be n1, got n2"),
    ],
)
def test_a_wrong_annotation_changes_nothing_and_is_reported(fake, start, eventually, caplog, annotation, says) -> None:
    fake.set_node("n1", inventory(2).to_json())
    border = start()
    eventually(lambda: border.inventories)
    fake.set_node("n1", annotation)
    eventually(lambda: fake.events)
    fake.set_node("n1", annotation)
    (event,) = fake.events
    assert event["reason"] == "InvalidInventory" and event["note"].endswith("; the last valid inventory is kept")
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-101"}
    assert re.search(says, border.status().inventory_problem) and re.search(says, caplog.text)
    fake.set_node("n1", inventory(2).to_json())
    eventually(lambda: not border.status().inventory_problem)
    assert border.inventories == [inventory(2)] and len(fake.events) == 1


def test_a_process_is_identified_by_the_running_border(fake, start, eventually) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    border, answers = start(), []
    border.identifier.identify(7, answers.append)
    eventually(lambda: answers == [PodIdentity(POD_UID, CID, "default", "train", "main", POD_UID)])


def test_a_process_is_identified_once_the_api_server_is_back(fake, start, eventually) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    fake.fail(HANG, "pods")
    border, answers = start(), []
    border.identifier.identify(7, answers.append)
    eventually(lambda: any(path == "/api/v1/pods" for path, _ in fake.requests))
    assert not answers
    fake.release()
    eventually(lambda: answers and answers[0].pod == "train")


def test_an_event_is_reported_by_the_running_border(fake, start, eventually) -> None:
    border = start()
    pod = PodIdentity(POD_UID, CID, "default", "train", "main", POD_UID)
    border.pod_events.record(pod, "OutOfMemory", "no room", warning=True)
    eventually(lambda: fake.events)
    eventually(lambda: border.status().events_queued == 0)


def test_the_kubelet_is_asked_at_once_and_again_and_again(start, kubelet, eventually, make_client) -> None:
    kubelet.allocations = [HELD]
    border = start(kubelet=make_client())
    eventually(lambda: len(border.allocations) >= 2)
    kubelet.allocations = []
    eventually(lambda: border.allocations[-1] == [])
    assert border.allocations[0] == [HELD]


def test_who_asks_gets_a_fresh_list_which_is_handed_to_nobody_else(start, kubelet, eventually, make_client) -> None:
    border = start(kubelet=make_client(), poll_s=60)
    eventually(lambda: border.allocations == [[]])
    answers = []
    for held in ([HELD], []):
        kubelet.allocations = held
        border.list_allocations(answers.append)
        eventually(lambda held=held: answers and answers[-1] == held)
    kubelet.stop()
    border.list_allocations(answers.append)
    eventually(lambda: answers[-1] is None)
    assert border.allocations == [[]]  # two lists in a row without a pod would have ended its grant


def test_a_border_without_kubelet_lists_no_allocations(start) -> None:
    assert start().allocation_lister is None


def test_while_the_kubelet_is_away_nothing_is_said(start, kubelet, eventually, make_client, caplog) -> None:
    kubelet.allocations = [HELD]
    kubelet.stop()
    border = start(kubelet=make_client())
    eventually(lambda: border.status().kubelet_problem)
    assert border.allocations == [] and caplog.text.count("the kubelet doesn't list the pods' devices") == 1
    kubelet.start()
    eventually(lambda: border.allocations)
    assert all(allocations == [HELD] for allocations in border.allocations)
    eventually(lambda: not border.status().kubelet_problem)


def test_a_kubelet_that_has_forgotten_its_pods_ends_nothing(start, kubelet, eventually, caplog) -> None:
    own = PodAllocation("emugpu-system", "emugpu-node-x", "", "", frozenset())
    kubelet.allocations = [own, HELD]
    border = start(kubelet=PodResources(kubelet.path, "emugpu-node-x"))
    eventually(lambda: border.allocations)
    kubelet.allocations = []
    eventually(lambda: border.status().kubelet_problem)
    assert "not this manager's own, emugpu-node-x" in caplog.text
    kubelet.allocations = [own]
    eventually(lambda: border.allocations[-1] == [own])
    assert [] not in border.allocations


def test_a_hanging_api_server_does_not_hold_up_the_kubelets_answers(
    fake, start, kubelet, eventually, make_client
) -> None:
    fake.fail(HANG)
    border = start(kubelet=make_client())
    border.identifier.identify(7, lambda _: None)
    eventually(lambda: len(border.allocations) >= 5)


def test_without_the_api_server_there_is_neither_identity_nor_event(start, make_client, eventually) -> None:
    border = start(api=None, kubelet=make_client())
    assert border.identifier is None and border.pod_events is None
    eventually(lambda: border.allocations)
    assert border.status().events_queued == 0


def test_a_mistake_in_a_thread_reaches_the_pollers_thread(fake, start, poller, eventually, monkeypatch) -> None:
    fake.set_node("n1", None)
    monkeypatch.setattr(KubernetesBorder, "_on_node", lambda *_: 1 / 0)
    start()
    eventually(lambda: poller.errors)
    assert isinstance(poller.errors.pop(), ZeroDivisionError)


# --- connect -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings(EnvSettings):
    PREFIX: ClassVar[str] = "EMUGPU_MANAGER_"
    node: str = "n1"
    pod_resources: str = ""
    pod: str = ""
    kubernetes: bool = True


def test_connect_as_the_settings_say(fake, poller, kubelet, monkeypatch, eventually) -> None:
    border = connect(Settings(kubernetes=False, pod_resources=str(kubelet.path)), poller)
    assert border.identifier is None
    seen = []
    border.start(None, seen.append)
    eventually(lambda: seen)
    border.stop()
    settings = Settings(kubernetes=False, pod_resources=str(kubelet.path), pod="emugpu-node-x")
    border = connect(settings, poller)
    border.start(None, seen.append)
    eventually(lambda: "emugpu-node-x" in border.status().kubelet_problem)
    border.stop()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    border = connect(Settings(), poller)
    assert border.identifier is not None and not fake.requests
    border.stop()


def test_connect_outside_a_pod(poller, monkeypatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_HOST: is not set"):
        connect(Settings(), poller)


def test_importing_the_package_costs_nothing() -> None:
    code = "import sys, sharing_manager.kubernetes; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"grpc", "ssl", "http", "google", "prometheus_client"} & set(done.stdout.split())


def test_stop_does_not_wait_for_a_hanging_api_server(fake, start, eventually, in_time) -> None:
    fake.fail(HANG)
    border = start()
    border.identifier.identify(7, lambda _: None)
    eventually(lambda: len(fake.requests) >= 2)
    began = time.monotonic()
    border.stop()
    assert in_time(most_s=border_module.JOIN_S / 2, since_s=began)  # the requests in flight are ended, not waited for
