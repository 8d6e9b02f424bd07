"""Attaching over a socket with look-ups that answer in any order: limits, time-outs and errors."""

import os
import re
import socket

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, RefusedError
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.poller import MAX_WAITING_BYTES, Peer, Poller
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.node.grant_files import GrantFiles
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.service import attaching, job_service
from sharing_manager.service.attaching import Attaching
from sharing_manager.service.job_service import JobService

GIB = 1024**3
RESOURCE = "emugpu.dev/emuGPU"


class Later:
    """An Identifier and a ProgressStore that answer when the test says so."""

    def __init__(self):
        self.asked = []

    def identify(self, pid, done):
        self.asked.append((pid, done))

    def lookup(self, job_key, done):
        self.asked.append((job_key, done))

    def list_allocations(self, done):
        self.asked.append(("kubelet", done))

    def remember(self, identity):
        raise AssertionError

    def answer(self, *answers):
        asked, self.asked = self.asked, []
        for (_, done), answer in zip(asked, answers, strict=True):
            done(answer)


class Served:
    """A node's job socket, served in turns by the test."""

    def __init__(self, node, path, ranks_key="", **lookups):
        self.node, self.path = node, path
        self.poller = Poller()
        self.files = GrantFiles(path.parent / "grants", lambda: 10**18)
        (path.parent / "grants").mkdir(exist_ok=True)
        self.attaching = Attaching(node.manager, self.files, **lookups)
        self.jobs = JobService(node.manager, self.attaching, ranks_key=ranks_key)
        self.poller.listen(path, self.jobs.on_message, self.jobs.on_close, on_open=self.jobs.on_open)
        self.clients = []

    def mint(self, *devices):
        return self.files.mint("emugpu.dev/emuGPU", devices, {})[0]

    def connect(self):
        self.clients.append(Client(self))
        self.turn()
        return self.clients[-1]

    def turn(self):
        for _ in range(10_000):
            if not self.poller.poll(0):
                return
        raise AssertionError("it never comes to rest")

    def close(self):
        for client in self.clients:
            client.socket.close()
        self.poller.close()


class Client:
    def __init__(self, served):
        self.served = served
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(served.path))

    def send(self, *messages):
        self.socket.sendall(b"".join(encode(message) for message in messages))
        self.served.turn()

    def received(self):
        """All answers so far; None in the end where the server hung up."""
        self.socket.setblocking(False)
        decoder, messages = Decoder(), []
        try:
            while data := self.socket.recv(1 << 20):
                messages += decoder.feed(data)
            messages.append(None)
        except BlockingIOError:
            pass
        except ConnectionResetError:
            messages.append(None)
        return messages

    def ask(self, message):
        self.send(message)
        return self.received()[-1]


def attach(token, **more):
    return {"op": "attach", "version": 2, "token": token} | more


LEASE = {"op": "lease", "step": 0, "duration_ns": 50, "issue_ns": 900}


@pytest.fixture
def serve(make_pod_node, tmp_path):
    all_served = []

    def make(replicas=1, **lookups):
        node = make_pod_node(replicas)
        (tmp_path / str(len(all_served))).mkdir()
        all_served.append(Served(node, tmp_path / str(len(all_served)) / "sock", **lookups))
        return all_served[-1]

    yield make
    for served in all_served:
        served.close()


@pytest.fixture
def identifier():
    return Later()


@pytest.fixture
def store():
    return Later()


# --- the whole way ----------------------------------------------------------------------------------------------------


def test_a_pod_attaches_when_all_is_known(serve, identifier, store, pod, uuids):
    served = serve(identifier=identifier, progress=store)
    client = served.connect()
    client.send(attach(served.mint(uuids[0])))
    ((pid, _),) = identifier.asked
    assert pid == os.getpid()
    assert (client.received(), served.attaching.pending) == ([], 1)
    identifier.answer(pod("a", job_key="job/0"))
    assert [key for key, _ in store.asked] == ["job/0"]
    store.answer(12)
    served.turn()
    device = {"uuid": uuids[0], "index": 0, "gpu_type": "T", "memory_bytes": 16 * GIB}
    assert client.received() == [
        {"ok": True, "version": 2, "job_id": "job/0", "steps_done": 12, "shared": False, "devices": [device]}
    ]
    seen = served.jobs.telemetry()
    assert (seen.connections, seen.attached, seen.pending_attaches) == (1, 1, 0)
    assert seen.devices[0].processes[0].pid == pid


def test_pods_of_one_job_get_the_same_secret_on_all_nodes_and_others_none_of_it(serve, identifier, pod, uuids):
    def secret(job_key, ranks_key="key"):
        served = serve(identifier=identifier, ranks_key=ranks_key)
        client = served.connect()
        client.send(attach(served.mint(uuids[0])))
        identifier.answer(pod("a", job_key=job_key))
        served.turn()
        return client.received()[-1].get("ranks_secret")

    assert secret("ns/job/0") == secret("ns/job/1") == secret("ns/job/1/container")
    assert (
        len({secret("ns/job/0"), secret("other/job/0"), secret("ns/other/0"), secret("ns/job/0", "another key")}) == 4
    )
    assert (secret("the-pods-uid"), secret("ns/job/0", "")) == (None, None)


def test_a_copied_token_is_refused_before_its_owner_has_shown_it_and_stays_the_owners(serve, identifier, pod, uuids):
    kubelet = Later()
    served = serve(identifier=identifier, allocation_lister=kubelet)
    token, owners = served.mint(uuids[0]), [PodAllocation("ns", "a", "main", "emugpu.dev/emuGPU", frozenset(uuids[:1]))]
    for name, good in (("thief", False), ("a", True)):
        client = served.connect()
        client.send(attach(token))
        identifier.answer(pod(name))
        kubelet.answer(owners)
        served.turn()
        (answer,) = client.received()
        assert answer["ok"] is good
    assert served.attaching.failures["refused"] == 1
    again = served.connect()
    again.send(attach(token, steps_done=0))
    identifier.answer(pod("a"))
    assert kubelet.asked == []  # it is bound


def test_a_kubelet_that_is_away_keeps_nobody_out(serve, identifier, pod, uuids):
    kubelet = Later()
    served = serve(identifier=identifier, allocation_lister=kubelet)
    client = served.connect()
    client.send(attach(served.mint(uuids[0])))
    identifier.answer(pod("a"))
    kubelet.answer(None)
    served.turn()
    assert client.received()[0]["ok"]


def test_what_was_asked_in_the_meantime_is_answered_after_it_in_order(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    client = served.connect()
    client.send(attach(served.mint(uuids[0])), LEASE, {"op": "nonsense"})
    assert client.received() == []
    identifier.answer(pod("a"))
    served.turn()
    answers = client.received()
    assert [answer["ok"] for answer in answers] == [True, True, False]
    assert answers[1]["end_ns"] - answers[1]["start_ns"] == 50


def test_a_process_that_was_connected_before_is_not_looked_up_in_the_store_again(serve, identifier, store, pod, uuids):
    served = serve(identifier=identifier, progress=store)
    token = served.mint(uuids[0])
    first = served.connect()
    first.send(attach(token))
    identifier.answer(pod("a"))
    store.answer(None)
    again = served.connect()
    again.send(attach(token, steps_done=0))
    identifier.answer(pod("a"))
    served.turn()
    assert store.asked == []
    assert again.received()[0]["steps_done"] == 0
    assert first.received()[-1] is None  # fenced by its own successor


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_an_unknown_token_costs_no_lookup(serve, identifier):
    served = serve(identifier=identifier)
    client = served.connect()
    for token in ("", "x", "0" * 64, "../../x"):
        assert "unknown token" in client.ask(attach(token))["error"]
    assert identifier.asked == []
    assert served.jobs.telemetry().attach_failures == {"refused": 4}


@pytest.mark.parametrize("where", ["identity", "progress"])
def test_a_lookup_that_fails_is_the_answer(serve, identifier, store, pod, uuids, where):
    served = serve(identifier=identifier, progress=store)
    client, token = served.connect(), served.mint(uuids[0])
    client.send(attach(token))
    error = ManagerUnavailableError("the API server is away")
    if where == "progress":
        identifier.answer(pod("a"))
        store.answer(error)
    else:
        identifier.answer(error)
    served.turn()
    assert client.received() == [
        {"ok": False, "code": "manager-unavailable", "error": "the API server is away", "about": "attach"}
    ]
    assert served.jobs.telemetry().attach_failures == {"manager-unavailable": 1}
    client.send(attach(token))  # a retry helps
    identifier.answer(pod("a"))
    store.answer(3)
    served.turn()
    assert client.received()[0]["steps_done"] == 3


def test_a_token_that_is_void_costs_no_lookup_in_the_store(serve, identifier, store, pod, uuids):
    served = serve(identifier=identifier, progress=store)
    old, new = (served.mint(uuids[0]) for _ in range(2))
    for token, name in ((new, "b"), (old, "a")):
        client = served.connect()
        client.send(attach(token))
        identifier.answer(pod(name))
        if token == new:
            store.answer(None)
    served.turn()
    assert store.asked == []
    assert "this token is void" in client.received()[0]["error"]


def test_a_thief_is_refused_and_the_owner_notices_nothing(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    token = served.mint(uuids[0])
    owner, thief = served.connect(), served.connect()
    owner.send(attach(token))
    identifier.answer(pod("a"))
    thief.send(attach(token, steps_done=99))
    identifier.answer(pod("b"))
    served.turn()
    assert "belongs to another pod" in thief.received()[0]["error"]
    assert owner.ask(LEASE)["ok"]


def test_a_connection_that_is_closed_meanwhile_gets_nothing_and_holds_nothing(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    client, token = served.connect(), served.mint(uuids[0])
    client.send(attach(token))
    client.socket.close()
    served.turn()
    assert served.attaching.pending == 0
    identifier.answer(pod("a"))
    assert served.node.manager.find(token) is None
    assert served.jobs.telemetry().connections == 0


def test_the_later_of_two_attachments_under_way_counts(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    token = served.mint(uuids[0])
    first, second = served.connect(), served.connect()
    first.send(attach(token))
    second.send(attach(token))
    assert first.received() == [None]
    identifier.answer(pod("a"), pod("a"))
    served.turn()
    assert second.received()[0]["ok"]
    assert served.attaching.pending == 0


def test_too_many_lookups_at_once_are_asked_to_come_again(serve, identifier, uuids, monkeypatch):
    monkeypatch.setattr(attaching, "MAX_PENDING", 1)
    served = serve(identifier=identifier)
    first, second = served.connect(), served.connect()
    first.send(attach(served.mint(uuids[0])))
    answer = second.ask(attach(served.mint(uuids[1])))
    assert (answer["code"], first.received()) == ("manager-unavailable", [])


def test_who_floods_while_it_waits_is_hung_up_on(serve, identifier, uuids):
    served = serve(identifier=identifier)
    client = served.connect()
    client.send(attach(served.mint(uuids[0])))
    sent = 0
    with pytest.raises(OSError):
        while sent < 10 * MAX_WAITING_BYTES:
            client.send(LEASE)
            sent += len(encode(LEASE))
    assert sent > MAX_WAITING_BYTES / 2
    assert served.attaching.pending == 0


# --- who connected isn't there any more -------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["attach", "query"])
def test_a_process_that_is_another_by_now_is_told_so_and_gets_nothing(serve, identifier, pod, uuids, op):
    """Asked when its pod is known: whoever is there then was there all the time."""
    there = [True]

    def check(connection):
        if not there[0]:
            raise RefusedError(f"process {connection.peer.pid} has ended")

    served = serve(identifier=identifier, check_peer=check)
    token, client = served.mint(uuids[0]), served.connect()
    ask_as(identifier, pod("a"), served.connect(), attach(token))
    client.send({"op": op, "version": 2, "token": token})
    there[0] = False
    identifier.answer(pod("a"))
    served.turn()
    assert client.received() == [
        {"ok": False, "code": "refused", "error": f"process {os.getpid()} has ended", "about": op}
    ]
    assert served.jobs.telemetry().connections == 2
    there[0] = True
    answer = ask_as(identifier, RefusedError("in no pod"), client, {"op": op, "version": 2, "token": token})
    assert answer["error"] == "in no pod"


# --- who shows nothing ------------------------------------------------------------------------------------------------


def test_strangers_are_few_and_the_one_with_the_most_pays(serve, uuids, monkeypatch):
    monkeypatch.setattr(job_service, "MAX_UNIDENTIFIED", 4)
    pids = iter([1, 2, 1, 1, 3, 4])
    monkeypatch.setattr(Peer, "of", lambda _: Peer(next(pids), 0, 0))
    served = serve()
    strangers = [served.connect() for _ in range(5)]
    assert [client.received() for client in strangers] == [[None], [], [], [], []]
    strangers[2].send(attach(served.mint(uuids[0])))
    assert strangers[2].received()[0]["ok"]  # whoever has shown a token is no stranger
    served.connect()
    assert [client.received() for client in strangers[1:]] == [[], [], [], []]
    assert served.jobs.telemetry().connections == 5


def test_the_oldest_goes_where_nobody_has_more_than_others(serve, monkeypatch):
    monkeypatch.setattr(job_service, "MAX_UNIDENTIFIED", 2)
    pids = iter([1, 2, 3])
    monkeypatch.setattr(Peer, "of", lambda _: Peer(next(pids), 0, 0))
    served = serve()
    strangers = [served.connect() for _ in range(3)]
    assert [client.received() for client in strangers] == [[None], [], []]


def test_who_waits_for_an_answer_is_not_sent_away(serve, identifier, uuids, monkeypatch):
    monkeypatch.setattr(job_service, "MAX_UNIDENTIFIED", 2)
    served = serve(identifier=identifier)
    waiting = served.connect()
    waiting.send(attach(served.mint(uuids[0])))
    strangers = [served.connect() for _ in range(3)]
    assert waiting.received() == []
    assert [client.received() for client in strangers] == [[None], [], []]


def test_those_that_wait_leave_the_strangers_their_room(serve, identifier, uuids, monkeypatch):
    monkeypatch.setattr(job_service, "MAX_UNIDENTIFIED", 2)
    served = serve(identifier=identifier)
    waiting = [served.connect() for _ in range(2)]
    for client, uuid in zip(waiting, uuids, strict=False):
        client.send(attach(served.mint(uuid)))
    strangers = [served.connect() for _ in range(2)]
    assert [client.received() for client in (*waiting, *strangers)] == [[], [], [], []]
    served.connect()
    assert [client.received() for client in (*waiting, *strangers)] == [[], [], [None], []]


# --- two processes with one token -------------------------------------------------------------------------------------


@pytest.fixture
def processes(serve, monkeypatch):
    """`as_pid(n)`: who connects from now on is process n."""
    pid = [1]
    monkeypatch.setattr(Peer, "of", lambda _: Peer(pid[0], 0, 0))
    served = serve()
    served.as_pid = lambda number: pid.__setitem__(0, number)
    return served


def test_a_second_process_is_refused_as_long_as_the_first_is_connected(processes, uuids):
    served = processes
    token = served.mint(uuids[0])
    first = served.connect()
    assert first.ask(attach(token))["ok"]
    served.as_pid(2)
    second = served.connect()
    for more in ({}, {"steps_done": 0}):  # one that begins, one that says it was here before
        assert second.ask(attach(token, **more)) == {
            "ok": False,
            "code": "refused",
            "error": "process 1 of this container trains on these devices already; run one training process in a "
            "container, wait for its end, or name the session of each further process (field 'session')",
            "about": "attach",
        }
    assert second.ask({"op": "query", "token": token})["ok"]
    assert first.ask(LEASE)["ok"]
    served.as_pid(1)
    again = served.connect()
    assert again.ask(attach(token, steps_done=0))["ok"]  # its own lost connection
    assert first.received() == [None]
    served.as_pid(2)
    assert second.ask(attach(token))["code"] == "refused"
    assert again.ask({"op": "finish", "steps_done": 3})["ok"]
    assert second.ask(attach(token))["steps_done"] == 3  # the run is over, though its process is connected still


def test_an_owners_grant_has_one_process_too(processes, uuids):
    served = processes
    token = served.node.manager.token_of(served.node.manager.grant("job", uuids[:1], 0))
    assert served.connect().ask(attach(token))["ok"]
    served.as_pid(2)
    assert "process 1 of this container trains" in served.connect().ask(attach(token))["error"]


def test_a_process_that_has_just_ended_is_no_obstacle(processes, uuids):
    """Its successor may be read before its end is."""
    served = processes
    token = served.mint(uuids[0])
    first, second = served.connect(), served.connect()
    assert first.ask(attach(token))["ok"]
    served.as_pid(2)
    second = served.connect()
    (holder,) = served.jobs._connections.values()
    holder.hold()  # so that the manager doesn't read its end
    first.socket.close()
    assert second.ask(attach(token, steps_done=4))["steps_done"] == 4


def test_after_a_restart_of_the_manager_whoever_comes_first_works(processes, uuids):
    served = processes
    token = served.mint(uuids[0])
    assert served.connect().ask(attach(token))["ok"]
    served.node.crash()
    served.node.manager.apply_inventory(served.node.inventory())
    again = Served(served.node, served.path.with_name("again"))
    again.files = served.files
    try:
        assert again.connect().ask(attach(token, steps_done=0))["ok"]
        served.as_pid(2)
        assert again.connect().ask(attach(token, steps_done=0))["code"] == "refused"
    finally:
        again.close()


def test_another_pod_hears_that_the_token_isnt_its_own_whoever_works_with_it(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    token = served.mint(uuids[0])
    served.connect().send(attach(token))
    identifier.answer(pod("a"))
    served.turn()
    thief = served.connect()
    thief.send(attach(token))
    identifier.answer(pod("b"))
    served.turn()
    assert thief.received()[-1]["error"].startswith("this token belongs to another pod")


def test_a_process_with_a_checkpoint_may_follow_one_that_has_ended(processes, uuids):
    served = processes
    token = served.mint(uuids[0])
    first = served.connect()
    assert first.ask(attach(token))["ok"]
    first.socket.close()
    served.turn()
    served.as_pid(2)
    assert served.connect().ask(attach(token, steps_done=7))["steps_done"] == 7


def test_processes_that_cant_be_told_apart_dont_displace_each_other(processes, uuids):
    served = processes
    served.as_pid(0)
    token = served.mint(uuids[0])
    first = served.connect()
    assert first.ask(attach(token))["ok"]
    for more in ({}, {"steps_done": 0}):
        assert served.connect().ask(attach(token, **more))["code"] == "refused"
    assert first.ask({"op": "reserve", "persistent_bytes": 1, "peak_bytes": 1})["ok"]
    first.socket.close()
    assert served.connect().ask(attach(token, steps_done=0))["ok"]


@pytest.mark.parametrize("op", ["finish", "release"])
def test_no_job_has_done_more_steps_than_the_cluster_can_count(processes, uuids, op):
    client = processes.connect()
    assert client.ask(attach(processes.mint(uuids[0])))["ok"]
    assert "from 0 to 9007199254740992" in client.ask({"op": op, "steps_done": 2**62})["error"]
    assert client.ask({"op": op, "steps_done": 2**53})["ok"]


# --- a manager that doesn't know its devices yet ----------------------------------------------------------------------


def test_before_the_inventory_has_come_jobs_are_asked_to_come_again(serve, uuids):
    not_ready = ["the inventory isn't known yet on this node"]
    served = serve(not_ready=lambda: not_ready[0])
    client, token = served.connect(), served.mint(uuids[0])
    assert client.ask(attach(token, steps_done=5)) == {
        "ok": False,
        "code": "manager-unavailable",
        "error": "the inventory isn't known yet on this node; try again",
        "about": "attach",
    }
    assert "unknown token" in client.ask(attach("x"))["error"]
    not_ready[0] = ""
    assert client.ask(attach(token, steps_done=5))["ok"]


# --- query ------------------------------------------------------------------------------------------------------------


def ask_as(identifier, who, client, message):
    """The answer to a request whose sender is looked up."""
    client.send(message)
    assert client.received() == []
    identifier.answer(who)
    client.served.turn()
    return client.received()[-1]


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (("b", "main"), "this token belongs to another pod; use the one in this container's own EMUGPU_TOKEN"),
        (("a", "side"), "this token belongs to container 'main' of this pod; use 'side''s EMUGPU_TOKEN"),
        (None, "process 7 runs outside of all pods"),
    ],
)
def test_a_query_is_answered_to_its_own_container_only(serve, identifier, pod, uuids, who, error):
    served = serve(identifier=identifier)
    token = served.mint(uuids[0])
    ask_as(identifier, pod("a"), served.connect(), attach(token))
    client, query = served.connect(), {"op": "query", "token": token}
    answer = ask_as(identifier, RefusedError(error) if who is None else pod(*who), client, query)
    assert answer == {"ok": False, "code": "refused", "error": error, "about": "query"}
    assert ask_as(identifier, pod("a"), client, query)["ok"]


def test_who_leaves_before_its_query_is_looked_up(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    token = served.mint(uuids[0])
    ask_as(identifier, pod("a"), served.connect(), attach(token))
    client = served.connect()
    client.send({"op": "query", "token": token})
    client.socket.close()
    served.turn()
    identifier.answer(pod("a"))
    served.turn()


def test_a_query_tells_of_the_grants_devices_and_changes_nothing(serve, identifier, pod, uuids):
    served = serve(replicas=2, identifier=identifier)
    mine, others = served.mint(f"{uuids[0]}::0"), served.mint(f"{uuids[0]}::1", f"{uuids[1]}::0")
    client = served.connect()
    idle = {"used_bytes": 0, "utilisation": 0.0, "healthy": True, "reason": "", "processes": []}
    device = {"uuid": uuids[0], "index": 0, "gpu_type": "T", "memory_bytes": 16 * GIB}
    assert client.ask({"op": "query", "token": mine}) == {"ok": True, "devices": [device | idle]}
    assert served.node.manager.find(mine) is None
    for token, name in ((mine, "a"), (others, "b")):
        holder = served.connect()
        holder.send(attach(token), {"op": "reserve", "persistent_bytes": GIB, "peak_bytes": GIB})
        identifier.answer(pod(name))
        served.turn()
    (answer,) = ask_as(identifier, pod("a"), client, {"op": "query", "token": mine})["devices"]
    assert answer["used_bytes"] == 2 * GIB
    assert [(p["name"], p["used_bytes"]) for p in answer["processes"]] == [("ns/a/main", GIB)]
    served.node.manager.revoke("uid-a", "x")
    assert "unknown token" in client.ask({"op": "query", "token": mine})["error"]


# --- what travels -----------------------------------------------------------------------------------------------------


def test_the_conversation_byte_for_byte(serve, uuids):
    """Jobs may be written in other languages, and outlive an upgrade of the manager."""
    served = serve()
    token = served.node.manager.token_of(served.node.manager.grant("job", uuids[:1], 0))
    client = served.connect()
    attached = (
        '{"ok":true,"version":2,"job_id":"job","steps_done":0,"shared":false,'
        f'"devices":[{{"uuid":"{uuids[0]}","index":0,"gpu_type":"T","memory_bytes":17179869184}}]}}'
    )
    for request, answer in (
        (f'{{"op":"attach","version":2,"token":"{token}"}}', attached),
        ('{"op":"reserve","persistent_bytes":1,"peak_bytes":2}', '{"ok":true}'),
        ('{"op":"lease","step":0,"duration_ns":50,"issue_ns":90}', '{"ok":true,"start_ns":1000,"end_ns":1050}'),
        ('{"op":"finish","steps_done":1}', '{"ok":true}'),
        (
            '{"op":"lease","step":1,"duration_ns":50,"issue_ns":90}',
            '{"ok":false,"code":"refused","error":"the grant of job \'job\' has ended (finished)","about":"lease"}',
        ),
    ):
        client.socket.sendall(len(request).to_bytes(4, "big") + request.encode())
        served.turn()
        assert client.socket.recv(1000) == len(answer).to_bytes(4, "big") + answer.encode()
    again = client.ask({"op": "attach", "version": 2, "token": token})
    assert again["error"] == "this connection is attached already"
    late = served.connect().ask({"op": "attach", "version": 2, "token": token})
    assert (late["ended"], late["devices"]) == ("finished", [])


def test_a_job_needs_no_name_and_gets_it(serve, uuids):
    served = serve()
    token = served.node.manager.token_of(served.node.manager.grant("job", uuids[:1], 5))
    answer = served.connect().ask(attach(token))
    assert (answer["version"], answer["job_id"], answer["steps_done"], answer["shared"]) == (2, "job", 5, False)
    assert "unknown token" in served.connect().ask(attach(token, job_id="another"))["error"]


# --- several processes of a container ---------------------------------------------------------------------------------


def process(token, name, **more):
    """A further process attaches."""
    return attach(token) | {"version": 3, "session": name, **more}


def test_processes_attach_beside_each_other_and_learn_of_each_other(serve, uuids):
    served = serve()
    token = served.mint(*uuids[:2])
    first, second, third = (served.connect() for _ in range(3))
    reply = first.ask(attach(token, version=3))
    assert [device["mode"] for device in reply["devices"]] == ["exclusive", "exclusive"]
    reply = second.ask(process(token, "second", devices=[1]))
    assert [(device["uuid"], device["mode"]) for device in reply["devices"]] == [(uuids[1], "fifo")]
    assert first.received() == [{"op": "mode", "resource": uuids[1], "mode": "fifo"}]
    reply = third.ask(process(token, "third", devices=[0]))
    assert first.received() == [{"op": "mode", "resource": uuids[0], "mode": "fifo"}]
    assert second.received() == []
    grant = served.node.grant(token)
    assert sorted(grant.named) == ["second", "third"]
    second.socket.close()
    served.turn()
    assert sorted(grant.named) == ["third"]
    assert first.ask({"op": "reserve", "persistent_bytes": 1, "peak_bytes": 2}) == {"ok": True}


def test_processes_that_attach_at_once_while_their_pod_is_looked_up(serve, identifier, pod, uuids):
    served = serve(identifier=identifier)
    token = served.mint(*uuids[:2])
    clients = [served.connect() for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(process(token, f"{number}", devices=[number]))
    assert served.attaching.pending == 2
    identifier.answer(pod("a"), pod("a"))
    served.turn()
    assert [[message["ok"] for message in client.received()] for client in clients] == [[True], [True]]


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "report", "steps_done": 3},
        {"op": "finish", "steps_done": 3},
        {"op": "release", "steps_done": 3},
        {"op": "fail", "reason": "x"},
        {"op": "lease", "step": 0, "duration_ns": 1, "issue_ns": 0},
    ],
)
def test_a_further_process_does_not_speak_for_the_job(serve, uuids, request_):
    served = serve()
    token = served.mint(uuids[0])
    client = served.connect()
    assert client.ask(process(token, "second"))["ok"]
    reply = client.ask(request_)
    assert (reply["code"], "process second doesn't speak for" in reply["error"]) == ("refused", True)
    assert served.node.manager.find(token).steps_done == 0


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"session": "x" * 65}, "field 'session' must have at most 64 characters"),
        ({"session": 3}, "field 'session' must be a text"),
        ({"steps_done": 3}, "field 'steps_done': only the main session"),
        ({"devices": [2]}, "field 'devices': .* has 1 devices, counted from 0"),
        ({"devices": [-1]}, "field 'devices' must be a list of whole numbers"),
        ({"devices": "all"}, "field 'devices' must be a list"),
    ],
)
def test_a_wrong_session_is_refused_and_opens_none(serve, uuids, wrong, problem):
    served = serve()
    token = served.mint(uuids[0])
    reply = served.connect().ask(process(token, "second") | wrong)
    assert reply["code"] == "protocol"
    assert re.search(problem, reply["error"])
    grant = served.node.manager.find(token)
    assert grant is None or not grant.named


def test_all_processes_learn_that_the_run_is_to_stop_or_a_device_is_lost(serve, uuids):
    served = serve()
    node = served.node
    token = node.manager.token_of(node.manager.grant("a", uuids[:2], 0))
    first, second = served.connect(), served.connect()
    assert first.ask(attach(token, version=3, job_id="a", devices=[0]))["ok"]
    assert second.ask(process(token, "second", devices=[1]))["ok"]
    node.manager.stop("a")
    assert [message["op"] for message in first.received()] == ["stop"]
    (stop,) = second.received()
    assert stop["last"] == 2**62  # it ends by itself
    node.manager.apply_inventory(node.inventory(count=1))
    assert first.received() == []
    (lost,) = second.received()
    assert (lost["op"], lost["resource"]) == ("lost", uuids[1])
    node.manager.revoke("a", "x")
    served.turn()
    assert first.received()[-1] is None and second.received()[-1] is None


# --- the devices that a scheduler chose -----------------------------------------------------------------------------------


def test_a_pod_gets_the_devices_of_its_scheduler_and_a_pod_that_is_gone_keeps_none(serve, identifier, pod, uuids):
    """The first holder of the chosen device has no connection, and the kubelet doesn't list its pod any more."""
    kubelet = Later()
    served = serve(identifier=identifier, allocation_lister=kubelet)
    served.attaching.allocation_of = {"uid-b": Allocation("gpu", ("n1",), devices=uuids[:1])}.get

    def begin(name, uuid, listed):
        client = served.connect()
        client.send(attach(served.mint(uuid)))
        identifier.answer(pod(name))
        kubelet.answer(listed)
        served.turn()
        return client, [device["uuid"] for device in client.received()[0].get("devices", ())]

    held = {
        name: PodAllocation("ns", name, "main", RESOURCE, frozenset(uuids[n : n + 1])) for n, name in enumerate("ab")
    }
    first, devices = begin("a", uuids[0], [held["a"]])
    assert devices == [uuids[0]]
    _, devices = begin("b", uuids[1], [*held.values()])
    assert devices == [uuids[1]], "the first pod is there"
    first.socket.close()
    served.turn()
    _, devices = begin("b", uuids[1], [*held.values()])
    assert devices == [uuids[1]], "it has only lost its connection"
    _, devices = begin("b", uuids[1], [held["b"]])
    assert devices == [uuids[0]]
    assert {grant.uuids for grant in served.node.manager.grants()} == {(uuids[0],)}
    server = served.mint(uuids[0])
    other = served.connect()
    assert other.ask({"op": "query", "token": server})["devices"][0]["uuid"] == uuids[1]  # what is left for its slot


def test_without_the_kubelet_nobody_counts_as_gone(serve, identifier, pod, uuids):
    kubelet = Later()
    served = serve(identifier=identifier, allocation_lister=kubelet)
    served.attaching.allocation_of = {"uid-b": Allocation("gpu", ("n1",), devices=uuids[:1])}.get
    for name, uuid in (("a", uuids[0]), ("b", uuids[1])):
        client = served.connect()
        client.send(attach(served.mint(uuid)))
        identifier.answer(pod(name))
        kubelet.answer(None)
        served.turn()
        assert [device["uuid"] for device in client.received()[0]["devices"]] == [uuid]
        client.socket.close()
        served.turn()
