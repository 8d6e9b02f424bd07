"""Model-based test: for any order of actions of kubelet, pods and administrators, device time has one holder at a time."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from emulator_runtime.domain.errors import DeviceLostError, RefusedError
from sharing_manager.grants.grant import GrantState
from sharing_manager.grants.identity import PodAllocation

HELD = (GrantState.GRANTED, GrantState.ATTACHED)


class Fencing(RuleBasedStateMachine):
    """A kubelet that gives devices away as it likes, pods that live on after their deletion, thieves of tokens.

    The model knows only what was answered: who asked, which leases came back, and when a holder was displaced (from then
    on what it was given doesn't count). `doing` is the pod and the container that hold a token's grant open.
    """

    def __init__(self, node, uuids, pod, devices):
        super().__init__()
        self.node, self.uuids, self.pod, self.devices = node, uuids, pod, devices
        self.numbers = itertools.count()
        self.tokens = {}  # token -> (pod, container, devices)
        self.allocated = {}  # device -> pod, as the kubelet says
        self.doing = {}  # token -> (grant, steps done)
        self.given = {uuid: [] for uuid in uuids}  # [token, start, end]
        self.void = {}  # device -> the newest token that attached (its number, its pod)
        node.manager.pods.on_displaced = self.displaced

    def displaced(self, grant):
        token = self.node.token_of(grant)
        self.doing.pop(token, None)
        self.cut(token)

    def cut(self, token):
        """What the token was given and hasn't had yet, it won't have."""
        now_ns = self.node.clock.now_ns()
        for intervals in self.given.values():
            for interval in intervals:
                if interval[0] == token:
                    interval[2] = max(interval[1], min(interval[2], now_ns))

    @rule(
        name=st.sampled_from("abcd"), container=st.sampled_from(["init", "main"]), at_once=st.booleans(), data=st.data()
    )
    def allocate(self, name, container, at_once, data):
        """Allocate: another pod has them from now on, whoever still computes there."""
        wanted = data.draw(st.lists(st.sampled_from(self.devices), min_size=1, max_size=2, unique=True))
        token = self.node.mint(f"t{next(self.numbers)}", *wanted)
        self.tokens[token] = (name, container, wanted)
        for device in wanted:
            self.allocated[device] = name
        if at_once:
            self.show(token, begins=True, thief=None)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), begins=st.booleans(), thief=st.sampled_from([None, None, None, "a", "b"]))
    def attach(self, data, begins, thief):
        self.show(data.draw(st.sampled_from(sorted(self.tokens))), begins=begins, thief=thief)

    def show(self, token, *, begins, thief):
        name, container, wanted = self.tokens[token]
        known = self.doing.get(token)
        steps = None if begins or known is None else known[1]
        number = int(token[1:])
        try:
            grant = self.node.attach(token, self.pod(thief or name, container), steps)
        except (RefusedError, DeviceLostError):
            return
        if grant.state not in HELD:
            return
        if thief not in (None, name):
            assert not known  # only the first to show it can have stolen it
            self.tokens[token] = (thief, container, wanted)
        owner = self.tokens[token][0]
        for device in wanted:
            newest, by = self.void.get(device, (-1, owner))
            assert number >= newest or by == owner, "an older token of another pod got in"
            self.void[device] = max((number, owner), self.void.get(device, (-1, "")))
        if steps is None:
            self.cut(token)
        self.doing[token] = (grant, grant.steps_done)

    @initialize(devices=st.permutations(range(3)))
    def some_pods_are_there(self, devices):
        for number, name in zip(devices, "abc", strict=True):
            token = self.node.mint(f"t{next(self.numbers)}", self.devices[number])
            self.tokens[token] = (name, "main", [self.devices[number]])
            self.allocated[self.devices[number]] = name
            self.show(token, begins=True, thief=None)

    @precondition(lambda self: self.doing)
    @rule(asked=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=6))
    def train(self, asked):
        for number, duration, pause in asked:
            self.lease(sorted(self.doing)[number % len(self.doing)], duration, pause)

    def lease(self, token, duration, pause):
        self.node.clock.advance_ns(pause)
        grant, step = self.doing[token]
        if grant.last_lease is not None and grant.last_step == step - 1:  # a job waits for the end of its step
            self.node.clock.advance_ns(max(0, grant.last_lease.end_ns - self.node.clock.now_ns()))
        lease = self.node.manager.lease(grant, step, duration, self.node.clock.now_ns())
        for device in grant.uuids:
            for other, start, end in self.given[device]:
                if start < end and (other, start, end) != (token, lease.start_ns, lease.end_ns):
                    assert lease.start_ns >= end or lease.end_ns <= start, (device, token, lease, other, start, end)
            self.given[device].append([token, lease.start_ns, lease.end_ns])
        self.doing[token] = (grant, step + 1)

    @precondition(lambda self: self.doing)
    @rule(data=st.data(), how=st.sampled_from(["finish", "release", "fail", "detached", "revoke"]))
    def end(self, data, how):
        token = data.draw(st.sampled_from(sorted(self.doing)))
        grant, steps = self.doing[token]
        match how:
            case "finish" | "release":
                getattr(self.node.manager, how)(grant, steps)
            case "fail":
                self.node.manager.fail(grant, "x")
            case "detached":
                self.node.manager.close_session(grant.main)
                return
            case "revoke":
                self.node.manager.revoke(grant.job_id, "x")
                return
        del self.doing[token]
        self.cut(token)

    @rule(what=st.sampled_from(["reconcile", "reconcile", "forgetful", "health", "crash", "crash", "crash later"]))
    def trouble(self, what):
        match what:
            case "reconcile" | "forgetful":
                self.reconcile(forgetful=what == "forgetful")
            case "health":
                self.health()
            case _:
                self.crash(later=what == "crash later")

    def reconcile(self, *, forgetful):
        """The kubelet says who has what; sometimes it has forgotten everything."""
        holders = {} if forgetful else self.allocated
        allocations = [PodAllocation("ns", name, "main", "r", frozenset({device})) for device, name in holders.items()]
        self.node.manager.pods.reconcile(allocations, list(self.node.minted.values()))

    def health(self):
        self.node.manager.apply_inventory(self.node.inventory(unhealthy={0: "x"}))
        self.node.manager.apply_inventory(self.node.inventory(count=0))
        self.node.manager.apply_inventory(self.node.inventory())

    def crash(self, *, later):
        self.node.crash()
        self.node.manager.pods.on_displaced = self.displaced
        self.node.manager.apply_inventory(self.node.inventory())
        for token, (_, steps) in list(self.doing.items()):
            if later:  # it is away for now, and comes back as any other attachment
                self.cut(token)
                del self.doing[token]
                self.node.manager.pods.attach(self.node.grant(token), self.pod(*self.tokens[token][:2]))
                continue
            self.doing[token] = (self.node.attach(token, self.pod(*self.tokens[token][:2]), steps), steps)

    @invariant()
    def one_holder_at_a_time(self):
        live = {self.node.grant(token).holder for token in self.doing}
        for device in self.node.pool.all():
            if self.node.replicas == 1:
                assert len(device.holders) <= 1
            assert device.holders >= {
                grant.holder for grant, _ in self.doing.values() if device.device.uuid in grant.uuids
            }
        assert len(live) == len(self.doing)

    def teardown(self):
        self.node.log.close()


def check(make_pod_node, uuids, pod, replicas, devices):
    def machine():
        return Fencing(make_pod_node(replicas), uuids, pod, devices)

    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=20, deadline=None))


def test_exclusive_devices(make_pod_node, uuids, pod):
    check(make_pod_node, uuids, pod, 1, uuids)


def test_the_replicas_of_shared_devices(make_pod_node, uuids, pod):
    """An id is one pod's at a time; that two replicas of a device don't overlap either is for the bookings to see to."""
    check(make_pod_node, uuids, pod, 3, [f"{uuids[0]}::{replica}" for replica in range(3)])
