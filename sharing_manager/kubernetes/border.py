"""The manager's connections to Kubernetes as one object. Each thread waits for one other program:

| thread | waits for | if it hangs, this is delayed |
|---|---|---|
| node watch | the API server, for changes of the Node | a new inventory |
| pod watch | the API server, for changes of the pods of EmuJobs | a new share of the node's CPUs and memory |
| requests | the API server, for answers (pods, events) | the first attachment of an unknown pod |
| kubelet | the kubelet, every 5 seconds | the end of grants of deleted pods |

The threads pass results to the manager through `Poller.call_soon`; the manager's own thread never waits for a network.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S, to_ns
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.grants.identity import AllocationLister, Identifier, PodAllocation, PodEvents
from sharing_manager.kubernetes.api_server import ApiServer, Endpoint, Timeouts
from sharing_manager.kubernetes.events import EventSender, Subject
from sharing_manager.kubernetes.node_watch import NodeWatch
from sharing_manager.kubernetes.objects import NodeFacts, PodFacts
from sharing_manager.kubernetes.pod_resources import KubeletError, PodResources
from sharing_manager.kubernetes.pod_watch import AllocationReader, PodWatch
from sharing_manager.kubernetes.pods import PodDirectory
from sharing_manager.kubernetes.problem_log import ProblemLog

POLL_S = 5.0
NEW_NODE_S = 30.0
"""Maximum time that a recreated Node may be without an inventory (host seconds)."""
JOIN_S = 1.0
"""Maximum time that `stop` waits for all threads together (host seconds)."""

OnInventory = Callable[[Inventory], None]
OnAllocations = Callable[[list[PodAllocation]], None]
OnAnswer = Callable[[list[PodAllocation] | None], None]


class BorderSettings(Protocol):
    """The settings that the border reads (described in sharing_manager/settings.py)."""

    @property
    def node(self) -> str: ...
    @property
    def kubernetes(self) -> bool: ...
    @property
    def pod_resources(self) -> str: ...
    @property
    def pod(self) -> str: ...


@dataclass(frozen=True, slots=True)
class BorderStatus:
    """The state of the border, for metrics. A problem is "" if there is none."""

    inventory_problem: str
    kubelet_problem: str
    events_queued: int
    events_dropped: int


class KubernetesBorder:
    """`identifier` and `pod_events` are None if the API server isn't used. The threads run from `start` to `stop`."""

    def __init__(
        self,
        node: str,
        poller: CallSoon,
        api: ApiServer | None,
        kubelet: PodResources | None,
        *,
        proc: Path = Path("/proc"),
        poll_s: float = POLL_S,
    ) -> None:
        self._node, self._poller, self._api, self._kubelet, self._poll_s = node, poller, api, kubelet, poll_s
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._kubelet_wake = threading.Event()
        self._requests: list[OnAnswer] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._pods = PodDirectory(api, node, poller, self._wake.set, proc) if api else None
        self._events = EventSender(api, node, self._wake.set, wall_ns) if api else None
        self._annotation: str | None = ""  # the last valid one; "" is never valid
        self._node_uid = ""  # the Node that had this annotation
        self._was_in_use = False
        self._new_since_ns: int | None = None
        self._inventory_problem = ProblemLog(f"node {node}: the inventory is valid again")
        self._kubelet_problem = ProblemLog(f"node {node}: the kubelet lists the pods' devices again")

    @property
    def identifier(self) -> Identifier | None:
        return self._pods

    @property
    def allocation_lister(self) -> AllocationLister | None:
        """None if no kubelet is configured."""
        return self if self._kubelet else None

    @property
    def pod_events(self) -> PodEvents | None:
        return self._events

    def start(
        self,
        on_inventory: OnInventory | None,
        on_allocations: OnAllocations | None,
        shares: HostShares | None = None,
        *,
        in_use: bool = False,
    ) -> None:
        """Start the threads. The callbacks are called in the poller's thread. `on_inventory` is None if the inventory
        doesn't come from the Node. `in_use` says that before its restart the manager knew the node to be in a pool."""
        self._was_in_use = in_use
        if self._api and self._pods and self._events:
            pods, events = self._pods, self._events
            if shares is not None:
                self._follow_shares(self._api, pods, shares)
            self._run("requests", lambda: self._serve_requests(pods, events))
            if on_inventory is not None:
                take = on_inventory
                watch = NodeWatch(self._api, self._node, lambda node: self._on_node(node, take))
                self._run("node-watch", lambda: watch.run(self._stopping))
        if self._kubelet and on_allocations is not None:
            kubelet, receive = self._kubelet, on_allocations
            self._run("kubelet", lambda: self._poll_kubelet(kubelet, receive))

    def stop(self) -> None:
        """End the threads; may be called twice. A thread that still waits for a connection ends with the process."""
        self._stopping.set()
        self._wake.set()
        self._kubelet_wake.set()
        if self._api:
            self._api.close()
        if self._kubelet:
            self._kubelet.close()
        give_up_ns = monotonic_ns() + to_ns(JOIN_S)
        for thread in self._threads:
            thread.join(max(0, give_up_ns - monotonic_ns()) / NS_PER_S)

    def list_allocations(self, done: OnAnswer) -> None:
        """See AllocationLister. Not for a border without a kubelet."""
        with self._lock:
            self._requests.append(done)
        self._kubelet_wake.set()

    def status(self) -> BorderStatus:
        """May be called in any thread."""
        events = self._events
        return BorderStatus(
            inventory_problem=self._inventory_problem.current,
            kubelet_problem=self._kubelet_problem.current,
            events_queued=events.queued if events else 0,
            events_dropped=events.dropped if events else 0,
        )

    # --- the threads ------------------------------------------------------------------------------------------------

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Run `work` in a thread. An unexpected error is raised in the poller's thread, so that it ends the daemon."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:
                if not self._stopping.is_set():
                    self._poller.call_soon(_raising(error))

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _follow_shares(self, api: ApiServer, pods: PodDirectory, shares: HostShares) -> None:
        """Get shares from the watch, and from the lists that identify pods: a pod may attach before the watch reports
        it."""
        watch = PodWatch(api, self._node, self._poller, shares)
        read = AllocationReader(self._node)

        def listed(pods_of_node: list[PodFacts]) -> None:
            seen = {pod.uid: read(pod.allocated) for pod in pods_of_node if pod.allocated is not None}
            known = {uid: allocation for uid, allocation in seen.items() if allocation is not None}
            self._poller.call_soon(partial(shares.set_listed, known))

        pods.on_listed = listed
        self._run("pod-watch", lambda: watch.run(self._stopping))

    def _serve_requests(self, pods: PodDirectory, events: EventSender) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            dues = [pods.step(monotonic_ns()), events.step(monotonic_ns())]
            soonest_ns = min((due for due in dues if due is not None), default=None)
            self._wake.wait(None if soonest_ns is None else max(0, soonest_ns - monotonic_ns()) / NS_PER_S)

    def _poll_kubelet(self, kubelet: PodResources, receive: OnAllocations) -> None:
        """List regularly, and on request. A list on request goes only to its requesters: a grant ends if it is missing in
        two consecutive regular lists, and lists on request may follow each other at once."""
        next_ns = monotonic_ns()
        while not self._stopping.is_set():
            self._kubelet_wake.clear()
            with self._lock:
                requests, self._requests = self._requests, []
            allocations: list[PodAllocation] | None = None
            try:
                allocations = kubelet.list()
            except KubeletError as error:
                self._kubelet_problem.report(str(error))
            else:
                self._kubelet_problem.clear()
            for done in requests:
                self._poller.call_soon(partial(done, allocations))
            if monotonic_ns() >= next_ns:
                next_ns = monotonic_ns() + to_ns(self._poll_s)
                if allocations is not None:
                    self._poller.call_soon(partial(receive, allocations))
            self._kubelet_wake.wait(max(0, next_ns - monotonic_ns()) / NS_PER_S)

    def _on_node(self, node: NodeFacts, take: OnInventory) -> None:
        """A Node without the annotation is in no pool, so it has no devices. An invalid annotation is reported and
        changes nothing."""
        if node.inventory == self._annotation:
            self._inventory_problem.clear()
            self._node_uid, self._new_since_ns = node.uid, None
            return
        if self._awaits_annotation(node):
            what = "was created again and has" if self._annotation else "has"
            text = f"node {node.name}: {what} no annotation {INVENTORY_ANNOTATION} yet; its devices are kept"
            self._inventory_problem.report(text)
            return
        try:
            inventory = self._inventory(node.inventory)
        except InputError as error:
            if self._events and str(error) != self._inventory_problem.current:
                note = f"{error}; the last valid inventory is kept"
                self._events.send(Subject("Node", node.name, node.uid), "InvalidInventory", note, warning=True)
            self._inventory_problem.report(str(error))
            return
        self._annotation, self._node_uid, self._new_since_ns = node.inventory, node.uid, None
        self._was_in_use = False
        self._inventory_problem.clear()
        self._poller.call_soon(partial(take, inventory))

    def _awaits_annotation(self, node: NodeFacts) -> bool:
        """Whether to wait for the annotation, which the pool controller writes on a recreated Node after a moment.

        Removing the devices until then would end all jobs on the node. The same applies to the first look after a restart
        of the manager, which can't know whether this is the Node that its devices came from. After NEW_NODE_S, the next
        change of the Node without the annotation means that it is in no pool. The kubelet changes its Node at least every
        five minutes.
        """
        if node.inventory is not None or node.uid == self._node_uid or not (self._annotation or self._was_in_use):
            return False
        if self._new_since_ns is None:
            self._new_since_ns = monotonic_ns()
        return monotonic_ns() - self._new_since_ns < to_ns(NEW_NODE_S)

    def _inventory(self, text: str | None) -> Inventory:
        if text is None:
            return Inventory(self._node, ())
        place = f"node {self._node}: annotation {INVENTORY_ANNOTATION}"
        inventory = Inventory.from_json(text, place)
        if inventory.node != self._node:
            raise InputError(f"{place}: node", f"must be {self._node}, got {inventory.node}")
        return inventory


def open_border(settings: BorderSettings, poller: CallSoon, timeouts: Timeouts | None = None) -> KubernetesBorder:
    """See `sharing_manager.kubernetes.connect`."""
    api = ApiServer(Endpoint.in_cluster(os.environ), timeouts) if settings.kubernetes else None
    kubelet = PodResources(Path(settings.pod_resources), settings.pod) if settings.pod_resources else None
    return KubernetesBorder(settings.node, poller, api, kubelet)


def _raising(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call
