"""The daemon of a local cluster as a process: both sockets, its life, and invalid input."""

import contextlib
import itertools
import json
import random
import signal
import socket
import stat
import time

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.client import ManagerClient
from emulator_runtime.ipc.frames import encode
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.timing.host import monotonic_ns

pytestmark = pytest.mark.processes
GIB = 1024**3
ENDED_S = 30


@pytest.fixture
def job(daemon, uuids):
    """Job `a` on the first device, attached."""
    client = ManagerClient(daemon.job_socket, daemon.grant("a", uuids[:1]), "a")
    client.attach(0)
    yield client
    client.close()


def test_a_whole_job_and_what_its_owner_sees(daemon, job, uuids):
    job.reserve(GIB, 2 * GIB)
    begin_ns = monotonic_ns()
    for step in range(3):
        lease = job.lease(step, 20_000_000, begin_ns)
    status = daemon.ask({"op": "status"})
    device = status["devices"][0]
    assert (device["uuid"], device["used_bytes"], device["holders"]) == (uuids[0], 2 * GIB, ["a"])
    assert device["leased_ns"] == 60_000_000
    assert status["devices"][1]["holders"] == []
    assert status["grants"] == [{"job_id": "a", "state": "attached", "steps_done": 2, "leased_ns": 60_000_000}]
    assert daemon.ask({"op": "steps", "job_id": "a"})["steps_done"] == 2
    assert (lease.start_ns, lease.end_ns) == (begin_ns + 40_000_000, begin_ns + 60_000_000)
    job.finish(3)
    assert daemon.ask({"op": "status"})["grants"] == []
    last = daemon.events("a")[-1]
    assert (last["event"], last["steps_done"]) == ("finished", 3)


def test_subscribers_get_what_was_and_what_comes_once_and_in_order(daemon, uuids):
    daemon.grant("a", uuids[:1])
    daemon.ask({"op": "revoke", "job_id": "a"})
    subscriber = daemon.connect(daemon.admin_socket)
    subscriber.send({"op": "subscribe", "after": 1})
    assert subscriber.receive() | {"at_ns": 0} == {
        "event": "failed",
        "sequence": 2,
        "at_ns": 0,
        "job_id": "a",
        "from_step": 0,
        "steps_done": 0,
        "detail": "revoked",
    }
    assert subscriber.receive() == {"ok": True}
    daemon.grant("b", uuids[:1])
    event = subscriber.receive()
    assert (event["event"], event["sequence"], event["job_id"]) == ("granted", 3, "b")


def test_stop_and_release(daemon, job):
    daemon.ask({"op": "stop", "job_id": "a"})
    assert job.lease(0, 1_000, monotonic_ns()).stop
    job.release(0)
    assert [e["event"] for e in daemon.events("a")] == ["granted", "attached", "stopping", "released"]


def test_revoke_refuses_the_next_lease_of_a_connected_job(daemon, job):
    job.lease(0, 1_000, monotonic_ns())
    daemon.ask({"op": "revoke", "job_id": "a", "reason": "x"})
    with pytest.raises(RefusedError, match=r"the grant of job 'a' has ended \(failed\)"):
        job.lease(1, 1_000, monotonic_ns())


def test_memory_of_a_lost_connection_is_free(daemon, job):
    job.reserve(GIB, GIB)
    job.close()
    give_up = time.monotonic() + 30
    while daemon.ask({"op": "status"})["devices"][0]["used_bytes"]:
        assert time.monotonic() < give_up
    job.lease(0, 1_000, monotonic_ns())
    assert daemon.ask({"op": "status"})["devices"][0]["used_bytes"] == GIB


def test_a_job_that_comes_back_replaces_its_lost_connection(daemon, job, uuids):
    job.reserve(GIB, GIB)
    again = ManagerClient(daemon.job_socket, daemon.grant("a", uuids[:1]), "a")
    again.attach(0)
    again.reserve(GIB // 2, GIB // 2)
    assert daemon.ask({"op": "status"})["devices"][0]["used_bytes"] == GIB // 2
    job.lease(0, 1_000, monotonic_ns())  # and the other way round
    assert job.reconnects == 1
    again.lease(1, 1_000, monotonic_ns())
    assert (again.reconnects, job.reconnects) == (1, 1)
    again.close()


BAD_JOB_REQUESTS = [
    ({"op": "lease"}, RefusedError, "attach first"),
    ({"op": "nonsense"}, ProtocolError, "field 'op' must be one of attach, query, lease"),
    ({"op": ["attach"]}, ProtocolError, "field 'op' must be one of"),
    ({}, ProtocolError, "field 'op' must be one of"),
    ({"op": "attach"}, ProtocolError, "field 'version'"),
    ({"op": "attach", "version": 4}, ProtocolError, "protocol version 4 is not supported, only 2 to 3"),
    ({"op": "attach", "version": 1, "token": "x", "job_id": "a"}, ProtocolError, "not supported, only 2"),
    ({"op": "attach", "version": 2, "token": "x"}, RefusedError, "unknown token"),
    ({"op": "query"}, ProtocolError, "field 'token'"),
    ({"op": "query", "token": "x"}, RefusedError, "unknown token"),
    ({"op": "attach", "version": 2, "token": "x", "job_id": "a", "steps_done": 0}, RefusedError, "unknown token"),
    ({"op": "attach", "version": 2, "token": 1, "job_id": "a", "steps_done": 0}, ProtocolError, "field 'token'"),
    ({"op": "attach", "version": 2, "token": "x", "job_id": "a", "steps_done": -1}, ProtocolError, "'steps_done'"),
]


def test_bad_requests_of_a_job(daemon, uuids):
    channel = daemon.connect(daemon.job_socket)
    for request, error, message in BAD_JOB_REQUESTS:
        with pytest.raises(error, match=message):
            raise_for(channel.request(request))
    attachment = {"op": "attach", "version": 2, "token": daemon.grant("a", uuids[:2]), "job_id": "a", "steps_done": 0}
    raise_for(channel.request(attachment))
    with pytest.raises(RefusedError, match="attached already"):
        raise_for(channel.request(attachment))
    lease = {"op": "lease", "step": 0, "duration_ns": 5, "issue_ns": 0}
    for field, value in (("step", "0"), ("duration_ns", -1), ("duration_ns", 10**17 + 1), ("issue_ns", 1.5)):
        with pytest.raises(ProtocolError, match=f"field '{field}' must be a whole number"):
            raise_for(channel.request(lease | {field: value}))
    with pytest.raises(OutOfMemoryError, match=r"out of memory on GPU-.*: a asks for 20\.00 GiB"):
        raise_for(channel.request({"op": "reserve", "persistent_bytes": 0, "peak_bytes": 20 * GIB}))
    with pytest.raises(ProtocolError, match="field 'reason'"):
        raise_for(channel.request({"op": "fail", "reason": "\ud800"}))
    raise_for(channel.request(lease))


BAD_OWNER_REQUESTS = [
    ({"op": "attach"}, ProtocolError, "field 'op' must be one of grant"),
    ({"op": None}, ProtocolError, "field 'op' must be one of grant"),
    ({"op": "grant"}, ProtocolError, "field 'job_id'"),
    ({"op": "grant", "job_id": "half \ud800", "devices": []}, ProtocolError, "field 'job_id'"),
    ({"op": "grant", "job_id": "a", "devices": "GPU"}, ProtocolError, "field 'devices'"),
    ({"op": "grant", "job_id": "a", "devices": ["GPU-x"]}, RefusedError, "there is no device GPU-x on this node"),
    ({"op": "grant", "job_id": "a", "devices": [], "steps_done": True}, ProtocolError, "field 'steps_done'"),
    ({"op": "steps", "job_id": "nobody"}, RefusedError, "job 'nobody' has no grant on this node"),
    ({"op": "revoke", "job_id": "a", "reason": 3}, ProtocolError, "field 'reason'"),
    ({"op": "subscribe", "after": "all"}, ProtocolError, "field 'after'"),
]


def test_bad_requests_of_the_owner(daemon):
    for request, error, message in BAD_OWNER_REQUESTS:
        with pytest.raises(error, match=message):
            daemon.ask(request)
    assert daemon.ask({"op": "status"})["grants"] == []


def test_the_admin_socket_is_the_owners_alone(daemon):
    assert stat.S_IMODE(daemon.admin_socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(daemon.job_socket.stat().st_mode) == 0o666


# --- whatever may come in ---------------------------------------------------------------------------------------------

OPS = [
    "attach",
    "query",
    "lease",
    "reserve",
    "release",
    "finish",
    "fail",
    "grant",
    "stop",
    "revoke",
    "steps",
    "status",
    "subscribe",
]
FIELDS = [
    *("version", "token", "job_id", "steps_done", "after_ns", "step", "duration_ns", "issue_ns"),
    *("persistent_bytes", "peak_bytes", "reason", "devices", "after"),
]
ODD = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2**62,
    2**63,
    2**70,
    1.5,
    1e308,
    "",
    "x",
    "\0",
    "\ud800",
    "y" * 5_000,
    [],
    {},
    ["x"],
]


def random_message(chance, tokens, devices):
    values = [*ODD, *tokens, *devices, ["x", 3], devices, devices[:1], chance.getrandbits(62), {"a": [1] * 50}]
    message = {field: chance.choice(values) for field in FIELDS if chance.random() < 0.7}
    message["op"] = chance.choice([*OPS, *OPS, chance.choice(ODD)])
    if chance.random() < 0.7:
        message |= {
            "version": chance.choice([1, 2]),
            "token": chance.choice(tokens),
            "job_id": chance.choice(["fuzz1", "fuzz2"]),
        }
    return message


def random_bytes(chance, tokens, devices):
    match chance.randrange(5):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return chance.randrange(2**32).to_bytes(4, "big") + chance.randbytes(20)
        case 2:
            body = chance.choice([b"[" * 50_000, b'{"op":NaN}', b"[]", b'{"op":' + b"9" * 5_000 + b"}", b"\xff"])
            return len(body).to_bytes(4, "big") + body
        case _:
            frame = bytearray(b"".join(encode(random_message(chance, tokens, devices)) for _ in range(3)))
            if chance.random() < 0.5:
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            return bytes(frame)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_input_at_both_sockets_hurts_only_its_sender(start_daemon, uuids, seed):
    chance, daemon = random.Random(f"{seed}/fuzz"), start_daemon("fifo")
    good = ManagerClient(daemon.job_socket, daemon.grant("good", uuids[1:2]), "good")
    good.attach(0)
    tokens = [daemon.grant("fuzz1", uuids[:1]), daemon.grant("fuzz2", [])]
    give_up, step = time.monotonic() + 1.2, 0
    while time.monotonic() < give_up or step <= 20:
        for path in (daemon.job_socket, daemon.admin_socket):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                with contextlib.suppress(OSError):
                    for _ in range(chance.randrange(1, 12)):
                        # the good job's name isn't among the random ones, or its owner would be ending it by right
                        sock.sendall(random_bytes(chance, tokens, uuids[:1]))
                    sock.settimeout(0.001)
                    sock.recv(chance.randrange(1, 100_000))
        lease = good.lease(step, 10, monotonic_ns())
        assert lease.end_ns - lease.start_ns == 10
        step += 1
    assert daemon.process.poll() is None
    assert good.reconnects == 0
    good.finish(step)
    good.close()
    good_events = daemon.events("good")
    assert good_events[-1]["event"] == "finished"
    assert good_events[-1]["steps_done"] == step > 20


# --- life -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(daemon, job, number):
    job.lease(0, 20_000_000, monotonic_ns())
    job.lease(1, 20_000_000, monotonic_ns())
    daemon.process.send_signal(number)
    _, errors = daemon.process.communicate(timeout=ENDED_S)
    assert (daemon.process.returncode, errors) == (0, "")
    assert not daemon.job_socket.exists()
    assert not daemon.admin_socket.exists()
    daemon.start()
    assert daemon.ask({"op": "steps", "job_id": "a"})["steps_done"] == 1
    job.lease(2, 1_000, monotonic_ns())
    assert job.reconnects == 1


def test_kill_and_restart_keeps_grants_and_tokens(daemon, job, uuids):
    job.lease(0, 1_000, monotonic_ns())
    daemon.kill()
    assert daemon.job_socket.exists()  # stale: the next one replaces it
    with pytest.raises(ManagerUnavailableError):
        Channel.connect(daemon.job_socket)
    daemon.start()
    with pytest.raises(RefusedError, match="exclusive"):
        daemon.grant("b", uuids[:1])
    job.lease(1, 1_000, monotonic_ns())
    job.finish(2)
    ranges = [(e["from_step"], e["steps_done"]) for e in daemon.events("a")]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))


def test_the_end_of_the_lifeline_ends_it(daemon, start_process, socket_pair):
    ours, theirs = socket_pair
    daemon.close()
    process = start_process(
        ["sharing_manager"],
        daemon.settings | {"EMUGPU_MANAGER_LIFELINE_FD": str(theirs.fileno())},
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    daemon.process = process
    daemon.connect(daemon.admin_socket)
    assert process.poll() is None
    ours.close()
    time.sleep(0.001)
    process.terminate()  # as a cluster does that closes: the first signal still drains
    _, errors = process.communicate(timeout=ENDED_S)
    assert (process.returncode, errors) == (0, "")
    assert not daemon.admin_socket.exists()


@pytest.fixture
def settings(short_directory):
    inventory = short_directory / "inventory.json"
    inventory.write_text(json.dumps([{"index": 0, "gpu_type": "T", "memory_bytes": 1}]))
    (short_directory / "file").write_text("in the way")
    return {
        "EMUGPU_MANAGER_NODE": "n1",
        "EMUGPU_MANAGER_INVENTORY": str(inventory),
        "EMUGPU_MANAGER_SOCKET_DIR": str(short_directory / "run"),
        "EMUGPU_MANAGER_STATE_DIR": str(short_directory / "state"),
    }


BAD_SETTINGS = [
    ("NODE", "", "EMUGPU_MANAGER_NODE: is missing"),
    ("NODDE", "n1", "unknown setting 'EMUGPU_MANAGER_NODDE'; did you mean EMUGPU_MANAGER_NODE"),
    ("INVENTORY", "/missing/file", "/missing/file: can't read the inventory: No such file"),
    ("SHARING", "fiffo", "EMUGPU_MANAGER_SHARING: unknown sharing mode 'fiffo'; did you mean fifo?"),
    ("CLOCK", "/missing/clock", "/missing/clock: can't open the shared clock"),
    ("SOCKET_DIR", "/proc/nowhere", "EMUGPU_MANAGER_SOCKET_DIR: can't make the directory /proc/nowhere: "),
    ("SOCKET_DIR", "{here}/" + "x" * 100, "can't listen there (AF_UNIX path too long); choose a short path"),
    ("STATE_DIR", "{here}/file", "/file: File exists"),
    ("LIFELINE_FD", "seven", "EMUGPU_MANAGER_LIFELINE_FD: must be the number of an open socket: "),
    ("LIFELINE_FD", "77", "EMUGPU_MANAGER_LIFELINE_FD: must be the number of an open socket: [Errno 9] Bad"),
]


def test_a_bad_setting_is_one_line(settings, start_process, short_directory):
    def start(number, name, value):
        own_state = {"EMUGPU_MANAGER_STATE_DIR": str(short_directory / f"state-{number}")}
        variables = {f"EMUGPU_MANAGER_{name}": value.format(here=short_directory)}
        return start_process(["sharing_manager"], settings | own_state | variables)

    processes = [  # all at once: it saves seconds
        (start(number, name, value), message) for number, (name, value, message) in enumerate(BAD_SETTINGS)
    ]
    for process, message in processes:
        output, errors = process.communicate(timeout=ENDED_S)
        assert message in errors
        assert (process.returncode, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith("sharing_manager: ")
    assert not list(short_directory.glob("**/*.sock"))


def test_a_state_file_that_is_none(settings, start_process, short_directory):
    (short_directory / "state").mkdir()
    (short_directory / "state" / "manager.db").write_text("no database" * 1000)
    process = start_process(["sharing_manager"], settings)
    _, errors = process.communicate(timeout=ENDED_S)
    assert process.returncode == 2
    assert "manager.db: can't use this file as event log: " in errors
    assert errors.count("\n") == 1


def test_a_second_manager_on_the_same_state_is_refused(daemon, start_process):
    second = start_process(["sharing_manager"], daemon.settings)
    _, errors = second.communicate(timeout=ENDED_S)
    assert second.returncode == 2
    assert "another sharing manager uses this state" in errors
    assert daemon.ask({"op": "status"})["ok"]


def test_help_and_arguments(start_process):
    helped, refused = start_process(["sharing_manager", "--help"], {}), start_process(["sharing_manager", "now"], {})
    output, _ = helped.communicate(timeout=ENDED_S)
    assert helped.returncode == 0
    assert "EMUGPU_MANAGER_STATE_DIR" in output
    _, errors = refused.communicate(timeout=ENDED_S)
    assert (refused.returncode, errors) == (2, "sharing_manager: takes no arguments; see --help\n")
