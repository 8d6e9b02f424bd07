"""Pods on the devices that their scheduler chose, although the kubelet allocated others: exchanges, refusals, restarts, terms."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from emulator_runtime.domain.errors import DeviceLostError, RefusedError
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.node.inventory import split_device_id
from emulator_runtime.sharing.demands import Demand, Terms
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.grants.placement import Choice, placement_of

MS = 1_000_000
RESOURCE = "emugpu.dev/emuGPU"


def chosen(*devices: str, milli: int = 0, priority: int = 0, row: int = 0) -> Allocation:
    shares = {"milli": (milli,) * len(devices), "priority": (priority,) * len(devices)} if milli else {}
    return Allocation("gpu", ("n1",), devices=devices, row=row, **shares)


@pytest.fixture
def node(pods):
    return pods


@pytest.fixture
def run(node, pod):
    """`run(name, slots, allocation)`: the grant of a new pod with these slots."""

    def run(name, *slots, allocation=None, **more):
        token = node.mint(f"{name}/{node.wall_ns}", *slots)
        return node.attach(token, pod(name), choice=Choice(allocation, **more))

    return run


def test_a_pod_has_the_device_that_its_scheduler_chose(node, run, uuids):
    a, b, c = uuids
    first = run("p", a, allocation=chosen(c))
    assert (first.uuids, first.slots, first.ids) == ((c,), (a,), (a,))
    assert run("q", c).uuids == (a,)  # nobody chose: its own device belongs to the first pod
    assert run("r", b).uuids == (b,)
    holders = {d.device.uuid: [str(p.pod) for p in d.processes] for d in node.manager.telemetry().devices}
    assert holders == {c: ["ns/p/main"], a: ["ns/q/main"], b: ["ns/r/main"]}
    attached = [event.detail for event in node.log.after(0) if event.kind == "attached"]
    assert attached == [c, a, b]


def test_the_next_pod_without_a_scheduler_has_its_own_device_again(node, run, uuids):
    a, _, c = uuids
    node.manager.finish(run("p", a, allocation=chosen(c)), 1)
    assert run("q", a).uuids == (a,)
    assert node.manager.pods.moved == {}


def test_a_device_of_another_pod_is_not_taken_and_the_owner_is_told(node, run, uuids):
    a, b, _ = uuids
    first = run("p", a)
    second = run("q", b, allocation=chosen(a))
    assert (first.uuids, second.uuids) == ((a,), (b,))
    assert ("ns/q/main", "elsewhere") in node.told
    assert "elsewhere" not in {event.kind for event in node.log.after(0)}


def test_a_pod_that_is_gone_keeps_no_device(node, run, uuids):
    a, b, _ = uuids
    first = run("p", a)
    second = run("q", b, allocation=chosen(a), is_gone=lambda grant: grant is first)
    assert second.uuids == (a,) and not first.live
    assert node.kinds(first.job_id)[-1] == "gone"


@pytest.mark.parametrize(
    ("slots", "devices", "problem"),
    [
        ((0,), (0, 1), "names 2 devices of this node, and the container has 1"),
        ((0, 1), (2,), "names 1 devices of this node, and the container has 2"),
        ((0,), (1,), "is unhealthy: broken"),
    ],
)
def test_a_choice_that_does_not_fit_changes_nothing(node, run, uuids, caplog, slots, devices, problem):
    node.manager.apply_inventory(node.inventory(unhealthy={1: "broken"}))
    own = tuple(uuids[slot] for slot in slots)
    if 1 in slots:
        node.manager.apply_inventory(node.inventory())
    assert run("p", *own, allocation=chosen(*(uuids[device] for device in devices))).uuids == own
    assert problem in caplog.text
    assert node.manager.pods.moved == {}


def test_devices_of_other_nodes_do_not_count(node, run, uuids):
    gang = Allocation(
        "gpu", ("n0", "n1"), devices=("EMU-elsewhere", uuids[2]), milli=(1000, 250), priority=(0, 3), row=5
    )
    grant = run("p", uuids[0], allocation=gang)
    assert (grant.uuids, grant.terms) == ((uuids[2],), (Terms(row=5, rank=1, milli=250, priority=3),))
    assert placement_of(gang, "n2", uuids[:1]).devices == ()


def test_a_restart_changes_no_device_and_no_terms(node, run, pod, uuids):
    a, b, c = uuids
    token = node.token_of(run("p", a, allocation=chosen(c, milli=500, priority=2, row=1)))
    node.crash()
    node.manager.apply_inventory(node.inventory())
    assert node.manager.pods.moved == {a: c, c: a}
    assert run("q", c, allocation=chosen(c)).uuids == (a,)  # p holds it although it hasn't connected again
    back = node.attach(token, pod("p"), 0)
    assert (back.uuids, back.terms) == ((c,), (Terms(row=1, milli=500, priority=2),))
    assert run("r", b, allocation=chosen(b)).uuids == (b,)


def test_what_a_container_sees_before_it_attaches_is_what_its_slot_stands_for(node, run, uuids):
    a, _, c = uuids
    run("p", a, allocation=chosen(c))
    node.mint("next", c)
    assert node.manager.pods.of_record(node.minted["next"]).uuids == (a,)


def test_a_second_container_of_a_pod_has_the_same_device(node, run, pod, uuids):
    a, _, c = uuids
    run("p", a, allocation=chosen(c))
    again = node.attach(node.mint("main", a), pod("p", "other"), choice=Choice(chosen(c)))
    assert again.uuids == (c,)


def test_a_pod_that_runs_again_after_its_slot_was_exchanged_has_what_is_left(node, run, pod, uuids):
    a, b, _ = uuids
    token = node.token_of(first := run("p", a))
    node.manager.finish(first, 1)
    assert run("q", b, allocation=chosen(a)).uuids == (a,)
    assert node.attach(token, pod("p")).uuids == (b,)


# --- shared devices ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharing(pods, pod):
    """`sharing(mode, (name, terms), ...)`: the pods' grants, all on the second device, though the kubelet spreads them."""

    def sharing(mode, *jobs):
        (resource,) = pods.inventory(replicas=2).resources
        shared = pods.inventory().__class__("n1", (resource.__class__(RESOURCE, resource.devices, 2, sharing=mode),))
        pods.manager.apply_inventory(shared)
        pods.clock._now_ns = 0
        device = resource.devices[1].device.uuid
        slots = [ids for entry in resource.devices for ids in resource.device_ids(entry)[:1]]
        grants = {}
        for row, (name, milli, priority) in enumerate(jobs):
            token = pods.mint(name, slots[row])
            allocation = chosen(device, milli=milli, priority=priority, row=row)
            grants[name] = pods.attach(token, pod(name), choice=Choice(allocation))
            assert grants[name].uuids == (device,)
        return pods, grants

    return sharing


def served(node, grants, **remaining):
    """Device time of each job in the first 400 ms, while both always have a demand queued."""
    number, time = dict.fromkeys(grants, 0), dict.fromkeys(grants, 0)
    by_holder = {grant.holder: name for name, grant in grants.items()}

    def ask(name, ready_ns):
        grant = grants[name]
        wanted = Demand(grant.holder, number[name], ready_ns, MS, remaining_ns=remaining.get(name, 0))
        node.manager.demand(grant.main, grant.uuids[0], wanted)
        number[name] += 1

    for name in grants:
        ask(name, 0)
    while (due_ns := node.manager.next_decision_ns()) is not None and due_ns < 400 * MS:
        node.clock.advance_to_ns(max(due_ns, node.clock.now_ns()))
        for each in node.manager.decide(due_ns):
            name, piece = by_holder[each.session.grant.holder], each.answer.piece
            time[name] += piece.work_ns
            ask(name, piece.end_ns)
    total = sum(time.values())
    return {name: round(100 * spent / total) for name, spent in time.items()}


def test_weights_of_3_to_1_give_75_percent(sharing):
    assert served(*sharing("weighted", ("a", 750, 0), ("b", 250, 0))) == {"a": 75, "b": 25}


def test_a_priority_gives_100_percent(sharing):
    assert served(*sharing("priority", ("a", 500, 0), ("b", 500, 1))) == {"a": 0, "b": 100}


def test_the_shorter_job_gets_100_percent(sharing):
    shares = served(*sharing("srtf", ("a", 500, 0), ("b", 500, 0)), a=9 * MS, b=5 * MS)
    assert shares == {"a": 0, "b": 100}


def test_a_cap_under_mps_holds(sharing):
    node, grants = sharing("mps", ("a", 250, 0))
    node.manager.demand(grants["a"].main, grants["a"].uuids[0], Demand(grants["a"].holder, 0, 0, 10 * MS))
    node.clock.advance_to_ns(40 * MS)
    (decision,) = node.manager.decide(40 * MS)
    assert decision.answer.piece.end_ns == 40 * MS


def test_a_shared_device_has_no_more_pods_than_replicas(sharing, pod):
    node, grants = sharing("mps", ("a", 250, 0), ("b", 250, 0))
    (device,) = grants["a"].uuids
    slot = next(s for s in node.manager.pods.moved if s not in {i for g in grants.values() for i in g.slots})
    third = node.attach(node.mint("c", slot), pod("c"), choice=Choice(chosen(device, milli=250)))
    assert third.uuids != (device,) and ("ns/c/main", "elsewhere") in node.told


# --- whatever happens in any order -----------------------------------------------------------------------------------------


class Choices(RuleBasedStateMachine):
    """A kubelet allocates slots, a scheduler chooses devices, pods come and go, the manager is killed."""

    def __init__(self, node, pod, replicas):
        super().__init__()
        self.node, self.pod, self.replicas = node, pod, replicas
        self.numbers = itertools.count()
        self.live = {}  # token -> (pod, slots, devices)
        self.count = 4
        self.apply()

    def apply(self):
        self.found = self.node.inventory(replicas=self.replicas, count=self.count)
        self.node.manager.apply_inventory(self.found)
        (self.resource,) = self.found.resources

    @property
    def ids(self):
        return [i for entry in self.resource.devices for i in self.resource.device_ids(entry)]

    @rule(data=st.data(), scheduled=st.booleans(), gone=st.booleans())
    def start(self, data, scheduled, gone):
        """Allocate: slots that no pod has, and perhaps any devices at all."""
        free = [i for i in self.ids if i not in {s for _, slots, _ in self.live.values() for s in slots}]
        if not free:
            return
        slots = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))
        uuids = sorted({split_device_id(i)[0] for i in self.ids})
        devices = data.draw(st.lists(st.sampled_from(uuids), max_size=2, unique=True))
        number = next(self.numbers)
        token = self.node.mint(f"t{number}", *slots)
        allocation = chosen(*devices, milli=500) if scheduled else None
        try:
            grant = self.node.attach(token, self.pod(f"p{number}"), choice=Choice(allocation))
        except (RefusedError, DeviceLostError):
            return
        self.live[token] = (f"p{number}", grant.slots, grant.devices)
        if scheduled and len(devices) == len(slots) == len(self.live) == 1:
            assert grant.uuids == tuple(devices), "nobody else is there"

    @precondition(lambda self: self.live)
    @rule(data=st.data(), how=st.sampled_from(["finish", "gone", "again"]))
    def leave(self, data, how):
        token = data.draw(st.sampled_from(sorted(self.live)))
        name, _, devices = self.live[token]
        grant = self.node.manager.find(token)
        if how == "again":
            with contextlib.suppress(DeviceLostError, RefusedError):  # its device has left the inventory
                assert self.node.attach(token, self.pod(name)).devices == devices
        elif how == "finish":
            self.node.manager.finish(grant, 1)
            del self.live[token]
        else:
            others = [
                PodAllocation("ns", other, "main", RESOURCE, frozenset(held))
                for key, (other, held, _) in self.live.items()
                if key != token
            ]
            for _ in range(2):
                self.node.manager.pods.reconcile(others, [])
            del self.live[token]

    @rule()
    def crash(self):
        self.node.crash()
        self.node.manager.apply_inventory(self.found)

    @rule(count=st.integers(2, 5))
    def inventory(self, count):
        self.count = count
        self.apply()

    def teardown(self):
        self.node.log.close()

    @invariant()
    def no_device_has_two_holders(self):
        grants = self.node.manager.grants()
        taken = [device for grant in grants for device in grant.devices]
        assert len(set(taken)) == len(taken), "two pods hold the same device, or the same part of one"
        if self.replicas == 1:
            uuids = [uuid for grant in grants for uuid in grant.uuids]
            assert len(set(uuids)) == len(uuids)

    @invariant()
    def pods_keep_their_devices(self):
        for token, (_, _, devices) in self.live.items():
            assert self.node.manager.find(token).devices == devices

    @invariant()
    def slots_are_a_permutation(self):
        moved = self.node.manager.pods.moved
        devices = [moved.get(slot, slot) for slot in {*self.ids, *moved}]
        assert len(set(devices)) == len(devices)
        assert self.node.log.slots() == moved


@pytest.mark.parametrize("replicas", [1, 2])
def test_any_order_of_pods_choices_and_restarts(make_pod_node, pod, replicas):
    run_state_machine_as_test(
        lambda: Choices(make_pod_node(replicas), pod, replicas),
        settings=settings(max_examples=40, stateful_step_count=25, deadline=None),
    )
