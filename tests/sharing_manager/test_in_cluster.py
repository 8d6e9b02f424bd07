"""The parts of a node's daemon together: input from Kubernetes and Redis reaches the manager, and events reach them."""

import json

import pytest

import sharing_manager.kubernetes
import sharing_manager.store
from emulator_runtime.cuda.container import container_settings
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.node.device_files import device_files
from emulator_runtime.node.grant_files import GrantFiles, GrantRecord
from emulator_runtime.node.inventory import Cuda, DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.node.layout import NodeLayout
from sharing_manager import in_cluster
from sharing_manager.core.manager import Manager
from sharing_manager.devices.inventories import publish, read_inventory
from sharing_manager.devices.pool import DevicePool
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.grants.placement import Choice
from sharing_manager.in_cluster import InCluster
from sharing_manager.persistence.event_log import SqliteEventLog
from sharing_manager.service.job_service import JobService
from sharing_manager.settings import Settings

GIB = 1024**3


def inventory(count=2, replicas=1, unhealthy=()):
    entries = tuple(
        DeviceEntry(
            Device("n1", n, "T", 16 * GIB), healthy=n not in unhealthy, reason="XID 79" if n in unhealthy else ""
        )
        for n in range(count)
    )
    return Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", entries, replicas),))


class Border:
    """Kubernetes, as this daemon sees it."""

    def __init__(self):
        self.remembered, self.notes, self.stopped = [], [], 0
        self.identifier = self.pod_events = self

    def start(self, on_inventory, on_allocations, shares, *, in_use):
        self.on_inventory, self.on_allocations, self.in_use = on_inventory, on_allocations, in_use

    def remember(self, identity):
        self.remembered.append(identity)

    def record(self, identity, reason, note, *, warning):
        self.notes.append((str(identity), reason, note, warning))

    def stop(self):
        self.stopped += 1


class Store:
    """Redis, as this daemon sees it."""

    def __init__(self):
        self.progress, self.started, self.notified, self.stopped = self, 0, 0, 0

    def start(self):
        self.started += 1

    def notify(self):
        self.notified += 1

    def stop(self):
        self.stopped += 1


class Daemon:
    """What sharing_manager.daemon does with these parts, without sockets and signals."""

    def __init__(self, layout, **settings):
        layout.make()
        self.layout, self.left = layout, 0
        given = {"node": "n1", "node_dir": str(layout.root), "inventory": "kubernetes", "kubernetes": True} | settings
        self.poller = Poller()
        self.cluster = InCluster(Settings(**given), layout, self.poller, self._leave)
        self.pool = DevicePool()
        first = self.cluster.first_inventory()
        if first is not None:
            self.pool.apply_inventory(first)
        self.log = SqliteEventLog(layout.state_dir / "manager.db")
        self.manager = Manager(self.pool, self.log, FixedClock(), lambda event: self.cluster.published(event))
        self.cluster.prepare(self.log)
        self.cluster.start(self.manager, JobService(self.manager), first)

    def _leave(self):
        self.left += 1

    def close(self):
        self.cluster.stop()
        self.poller.close()
        self.log.close()


class FixedClock:
    def now_ns(self):
        return 5


@pytest.fixture
def border(monkeypatch):
    border = Border()
    monkeypatch.setattr(sharing_manager.kubernetes, "connect", lambda settings, poller: border)
    return border


@pytest.fixture
def store(monkeypatch):
    store = Store()
    monkeypatch.setattr(sharing_manager.store, "connect", lambda settings, log, poller: store)
    return store


@pytest.fixture
def start(tmp_path, border):
    daemons = []

    def make(**settings):
        daemons.append(Daemon(NodeLayout(tmp_path / "node"), **settings))
        return daemons[-1]

    yield make
    for daemon in daemons:
        daemon.close()


def attach(daemon, pod, *devices, name="a"):
    files = GrantFiles(daemon.layout.grants_dir, lambda: 10**18)
    token, record = files.mint("emugpu.dev/emuGPU", devices, {})
    return daemon.manager.pods.attach(daemon.manager.find(token) or Grant.of_record(record), pod(name))


def ready(daemon):
    return daemon.cluster._not_ready_reason


def test_a_node_has_nothing_until_the_api_server_has_spoken(start, border, uuids):
    daemon = start()
    assert ready(daemon) == "the inventory isn't known yet"
    assert (daemon.cluster.not_ready(), border.in_use) == ("the inventory isn't known yet on this node", False)
    assert not daemon.layout.inventory_file.exists()
    border.on_inventory(inventory())
    assert (ready(daemon), daemon.cluster.not_ready()) == ("", "")
    assert read_inventory(daemon.layout.inventory_file, "n1") == inventory()
    assert [d.device.uuid for d in daemon.pool.all()] == uuids[:2]


def test_a_restarted_daemon_has_what_it_published_and_the_pods_it_knew(start, border, pod, uuids):
    first = start()
    border.on_inventory(inventory())
    grant = attach(first, pod, uuids[0])
    assert first.manager.grants() == [grant]
    first.close()
    second = start()
    assert (ready(second), second.cluster.not_ready(), border.in_use) == ("", "", True)
    assert [d.holders for d in second.pool.all()] == [{grant.holder}, set()]
    assert border.remembered == [pod("a")]


def test_a_restarted_daemon_that_cant_read_what_it_published_says_why_and_waits(start, border, caplog):
    first = start()
    border.on_inventory(inventory())
    first.close()
    first.layout.inventory_file.write_text("{")
    second = start()
    assert "is not JSON" in caplog.text and "waiting for a new one" in caplog.text
    assert (second.cluster.not_ready() != "", border.in_use) == (True, False)
    border.on_inventory(inventory())
    assert second.cluster.not_ready() == ""


def test_a_restarted_daemon_of_a_node_in_no_pool_had_no_devices(start, border):
    first = start()
    border.on_inventory(Inventory("n1", ()))
    first.close()
    assert (start().cluster.not_ready(), border.in_use) == ("", False)


def test_a_node_of_a_pool_without_gpus_is_in_use(start, border, monkeypatch):
    """Over restarts, and it begins anew where it is wanted again after it was cleaned up."""
    now_ns = [10**12]
    monkeypatch.setattr(in_cluster, "monotonic_ns", lambda: now_ns[0])
    first = start()
    border.on_inventory(Inventory("n1", (), pool="cpu"))
    assert (ready(first), list(read_inventory(first.layout.inventory_file, "n1").entries())) == ("", [])
    first.close()
    second = start()
    assert (second.cluster.not_ready(), border.in_use) == ("", True)
    border.on_inventory(Inventory("n1", (), cleanup=True))
    now_ns[0] += in_cluster.REMOVAL_DELAY_NS
    second.cluster.turn()
    assert (list(second.layout.root.iterdir()), second.left) == ([], 0)
    border.on_inventory(Inventory("n1", (), pool="cpu"))
    assert second.left == 1


def test_what_concerns_a_pod_is_told_to_its_owner(start, border, pod, uuids):
    daemon = start()
    border.on_inventory(inventory())
    grant = attach(daemon, pod, uuids[0])
    border.on_inventory(inventory(unhealthy=[0]))
    border.on_inventory(inventory())
    daemon.manager.finish(grant, 3)
    attach(daemon, pod, uuids[0], name="b")
    assert border.notes == [
        ("ns/a/main", "EmuGPUAttached", f"container main starts on {uuids[0]}", False),
        ("ns/a/main", "EmuGPULost", f"device {uuids[0]} is lost: XID 79", True),
        ("ns/a/main", "EmuGPUFenced", "a newer pod has attached to its devices", True),
        ("ns/b/main", "EmuGPUAttached", f"container main starts on {uuids[0]}", False),
    ]


def test_what_the_kubelet_says_ends_grants_and_deletes_their_files(start, border, pod, uuids):
    daemon = start()
    border.on_inventory(inventory())
    staying = attach(daemon, pod, uuids[0])
    going = attach(daemon, pod, uuids[1], name="b")
    fenced = attach(daemon, pod, uuids[1], name="c")
    allocations = [PodAllocation("ns", "a", "main", "r", frozenset(uuids[:1]))]
    for _ in range(2):
        border.on_allocations(allocations)
    assert (staying.live, going.state, fenced.state) == (True, GrantState.FENCED, GrantState.GONE)
    assert [record.token_digest for record in daemon.cluster.files.all()] == [staying.digest]


def test_files_of_grants_that_ended_before_a_restart_go_at_the_start(start, border, pod, uuids):
    daemon = start()
    border.on_inventory(inventory())
    attach(daemon, pod, uuids[0])
    daemon.manager.pods.end_all("x")
    assert len(daemon.cluster.files.all()) == 1
    daemon.close()
    assert start().cluster.files.all() == []


def test_a_broken_grant_directory_is_reported_once(start, border, caplog):
    daemon = start()
    (daemon.layout.grants_dir / ("ab" * 16)).mkdir()
    for _ in range(3):
        border.on_allocations([])
    assert [r.message for r in caplog.records if "has no grant.json" in r.message] == [
        f"{daemon.layout.grants_dir / ('ab' * 16)}: has no grant.json; delete it"
    ]


def test_sharing_that_doesnt_fit_is_reported_and_the_last_inventory_stays(start, border, tmp_path, caplog):
    (tmp_path / "sharing.yaml").write_text("sharing: {timeSlicing: {resources: [{name: x.dev/other, replicas: 2}]}}")
    daemon = start(sharing_config=str(tmp_path / "sharing.yaml"))
    border.on_inventory(inventory())
    assert ready(daemon) != ""
    assert "the previous state stays in force" in caplog.text
    (tmp_path / "sharing.yaml").write_text("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}")
    border.on_inventory(inventory())
    assert read_inventory(daemon.layout.inventory_file, "n1").resources[0].replicas == 2


def test_cleaning_up(start, border, pod, uuids, monkeypatch):
    now_ns = [10**12]
    monkeypatch.setattr(in_cluster, "monotonic_ns", lambda: now_ns[0])
    daemon = start()
    border.on_inventory(inventory())
    grant = attach(daemon, pod, uuids[0])
    border.on_inventory(Inventory("n1", (), cleanup=True))
    assert (grant.state, ready(daemon)) == (GrantState.GONE, "emugpu has been removed from this node")
    assert read_inventory(daemon.layout.inventory_file, "n1").resources == ()  # for the device plugin to see
    assert daemon.cluster.due_ns() == now_ns[0] + in_cluster.REMOVAL_DELAY_NS
    daemon.cluster.turn()
    assert daemon.layout.inventory_file.exists()
    now_ns[0] += in_cluster.REMOVAL_DELAY_NS
    daemon.cluster.turn()
    assert list(daemon.layout.root.iterdir()) == []
    assert daemon.cluster.due_ns() is None
    for cleanup in (True, False):  # and then the annotation is taken away
        border.on_inventory(Inventory("n1", (), cleanup=cleanup))
        assert (daemon.left, list(daemon.layout.root.iterdir())) == (0, [])
    border.on_inventory(inventory())
    assert daemon.left == 1


def test_cleaning_up_goes_on_when_the_annotation_is_taken_away_early(start, border, monkeypatch):
    now_ns = [10**12]
    monkeypatch.setattr(in_cluster, "monotonic_ns", lambda: now_ns[0])
    daemon = start()
    border.on_inventory(inventory())
    border.on_inventory(Inventory("n1", (), cleanup=True))
    border.on_inventory(Inventory("n1", ()))
    assert daemon.left == 0
    now_ns[0] += in_cluster.REMOVAL_DELAY_NS
    daemon.cluster.turn()
    assert list(daemon.layout.root.iterdir()) == []


def test_a_node_that_is_wanted_again_before_it_was_cleaned_up_just_goes_on(start, border, monkeypatch, uuids):
    now_ns = [10**12]
    monkeypatch.setattr(in_cluster, "monotonic_ns", lambda: now_ns[0])
    daemon = start()
    border.on_inventory(inventory())
    border.on_inventory(Inventory("n1", (), cleanup=True))
    border.on_inventory(inventory(count=1))
    assert (daemon.left, ready(daemon), daemon.cluster.due_ns()) == (0, "", None)
    now_ns[0] += in_cluster.REMOVAL_DELAY_NS
    daemon.cluster.turn()
    assert read_inventory(daemon.layout.inventory_file, "n1") == inventory(count=1)
    assert [d.device.uuid for d in daemon.pool.all()] == uuids[:1]


def test_an_empty_inventory_alone_removes_nothing(start, border, pod, uuids):
    daemon = start()
    border.on_inventory(inventory())
    grant = attach(daemon, pod, uuids[0])
    border.on_inventory(Inventory("n1", ()))
    assert (grant.live, ready(daemon), daemon.cluster.due_ns()) == (True, "", None)


def test_redis_hears_of_every_event(start, border, store, pod, uuids):
    daemon = start(redis_url="redis://x")
    assert (daemon.cluster.progress, store.started) == (store, 1)
    border.on_inventory(inventory())
    attach(daemon, pod, uuids[0])
    assert store.notified == 2
    daemon.close()
    assert (store.stopped, border.stopped) == (1, 1)


def test_without_redis_the_log_stays_bounded(start, border, pod, uuids, monkeypatch):
    monkeypatch.setattr(in_cluster, "EVENTS_KEPT", 10)
    daemon = start()
    border.on_inventory(inventory())
    grant = attach(daemon, pod, uuids[0])
    for step in range(1, 1_000):
        daemon.manager._ledger.progress_to(grant, step)
        daemon.manager.flush_progress()
    assert next(event.sequence for event in daemon.log.after(0)) == 991
    assert daemon.cluster.progress is None


def test_a_daemon_without_kubernetes_says_so(tmp_path, start, border, caplog):
    path = tmp_path / "inventory.json"
    publish(path, inventory())
    daemon = start(kubernetes=False, inventory=str(path))
    assert daemon.cluster.identifier is None
    assert (
        "pods are not identified (EMUGPU_MANAGER_KUBERNETES is 0): any process with a token may use it" in caplog.text
    )
    assert ready(daemon) == ""


# --- devices that a scheduler chose ------------------------------------------------------------------------------------------


def test_slots_that_stand_for_other_devices_are_published_and_known_after_a_restart(start, pod, border):
    daemon = start()
    border.on_inventory(inventory())
    a, b = (entry.device.uuid for entry in inventory().entries())
    token = "0" * 32
    record = GrantRecord(token, token * 2, "emugpu.dev/emuGPU", (a,), 10**18)
    allocation = Allocation("gpu", ("n1",), devices=(b,))
    daemon.manager.pods.attach(daemon.manager.pods.of_record(record), pod("p"), choice=Choice(allocation))

    def published():
        (resource,) = read_inventory(daemon.layout.inventory_file, "n1").resources
        return dict(resource.moved)

    assert published() == {a: b, b: a}
    daemon.close()
    again = start()
    assert published() == {a: b, b: a} == again.manager.pods.moved


def test_a_container_sees_the_devices_that_it_has(start, pod, border, caplog):
    daemon = start()
    border.on_inventory(inventory())
    a, b = (entry.device.uuid for entry in inventory().entries())
    files, (resource,) = daemon.cluster.files, inventory().resources
    settings = container_settings(Cuda(), resource, (a,))
    _, record = files.mint(resource.name, (a,), device_files(resource, "n1", (a,)), settings)
    cuda = files.cuda_dir(record.grant_id) / "settings"

    def seen():
        return {path.name: json.loads(path.read_text())["uuid"] for path in files.edev_dir(record.grant_id).iterdir()}

    assert seen() == {"0": a}
    assert f"uuid {a}\n" in cuda.read_text()
    given = Allocation("gpu", ("n1",), devices=(b,))
    daemon.manager.pods.attach(daemon.manager.pods.of_record(record), pod("p"), choice=Choice(given))
    assert seen() == {"1": b}
    assert f"uuid {b}\n" in cuda.read_text()
    _, lost = files.mint(resource.name, (b,), {})
    files.remove(lost.grant_id)
    assert daemon.manager.pods.attach(daemon.manager.pods.of_record(lost), pod("q")).uuids == (a,)
    assert "the device files of its container can't be written" in caplog.text


def test_a_failure_to_publish_is_logged_and_keeps_no_pod_out(start, pod, border, monkeypatch, caplog):
    daemon = start()
    border.on_inventory(inventory())
    a, b = (entry.device.uuid for entry in inventory().entries())

    def full(*_):
        raise InputError("inventory.json", "can't be written: no space")

    monkeypatch.setattr("sharing_manager.in_cluster.publish", full)
    record = GrantRecord("1" * 32, "1" * 64, "emugpu.dev/emuGPU", (a,), 10**18)
    allocation = Allocation("gpu", ("n1",), devices=(b,))
    assert daemon.manager.pods.attach(Grant.of_record(record), pod("p"), choice=Choice(allocation)).uuids == (b,)
    assert "no space" in caplog.text


@pytest.mark.parametrize("placement", [False, True])
def test_the_annotation_counts_only_where_nobody_but_schedulers_writes_it(start, placement):
    daemon = start(placement=placement)
    given = Allocation("gpu", ("n1",), cpu_milli=1000, devices=("EMU-1",))
    daemon.cluster.shares.changed("uid", given)
    assert daemon.cluster.allocation_of("uid") == (given if placement else None)
    assert daemon.cluster.shares.of("uid") == given.host  # CPUs and memory slow down nobody but the pod itself
