"""The client of the manager: after any failure of the connection, a request is repeated until it is answered."""

import contextlib
import socket
import time

import pytest

from emulator_runtime.domain.errors import (
    DeviceLostError,
    ManagerUnavailableError,
    OutOfMemoryError,
    ProtocolError,
    RefusedError,
)
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc import client as client_module
from emulator_runtime.ipc.client import AttachedDevice, ManagerClient, Patience
from emulator_runtime.ipc.control import resize_message
from emulator_runtime.ipc.frames import encode
from emulator_runtime.ipc.replies import error_reply

OK = {"ok": True}
MS = 1_000_000


def messages(*several):
    """What the server sends at once."""
    return b"".join(encode(message) for message in several)


@pytest.fixture(autouse=True)
def _named_connections(monkeypatch):
    """Each client names its connections c.1, c.2, ..."""
    monkeypatch.setattr(client_module.secrets, "token_hex", lambda _: "c")


def ops(messages):
    return [message["op"] for message in messages]


@pytest.fixture
def client(tmp_path, host):
    client = ManagerClient(tmp_path / "sock", "secret", "job-1", patience=Patience(2.0, host.now, host.sleep))
    yield client
    client.close()


def report(step, from_ms, until_ms):
    """The message about a step that begins now on devices of the job's own."""
    work_ns = (until_ms - from_ms) * MS
    times = {"from_ns": from_ms * MS, "work_ns": work_ns, "until_ns": until_ms * MS}
    return {"op": "report", **times, "steps_done": step}


def lose(client):
    """Returns when the client has noticed that its connection was closed."""
    while client._channel is not None:
        client.new_share()


def test_a_whole_run_over_one_connection(serve, client, host):
    server = serve([OK, OK, None, None, OK])
    client.attach(3)
    client.reserve(10, 20)
    assert client.lease(3, 50 * MS, 90 * MS) == Lease(90 * MS, 140 * MS)
    assert client.lease(4, 50 * MS, 150 * MS) == Lease(150 * MS, 200 * MS)
    client.finish(5)
    assert server.received == [
        [
            {
                "op": "attach",
                "version": 3,
                "token": "secret",
                "job_id": "job-1",
                "after_ns": 0,
                "connection": "c.1",
                "steps_done": 3,
            },
            {"op": "reserve", "persistent_bytes": 10, "peak_bytes": 20},
            report(3, 90, 140),
            report(4, 150, 200),
            {"op": "finish", "steps_done": 5},
        ]
    ]
    assert client.reconnects == 0
    assert host.sleeps == []


def test_short_steps_are_reported_together(serve, client):
    server = serve([OK, None, None, None, OK])
    client.attach(0)
    for step in range(25):
        client.lease(step, 9 * MS // 10, step * MS)
    client.finish(25)
    assert [m["steps_done"] for m in server.received[0] if m["op"] == "report"] == [10, 20, 24]
    assert server.received[0][1] == report(10, 0, 0) | {"until_ns": 10_900_000, "work_ns": 11 * 900_000}
    assert sum(m.get("work_ns", 0) for m in server.received[0]) == 25 * 900_000


def test_a_step_begins_when_the_last_one_and_what_was_before_the_job_have_ended(serve, client):
    serve([OK | {"free_ns": 95 * MS}, None, None])
    client.attach(0)
    assert client.lease(0, 50 * MS, 90 * MS) == Lease(95 * MS, 145 * MS)
    assert client.lease(1, 50 * MS, 140 * MS) == Lease(145 * MS, 195 * MS)


@pytest.fixture
def follower(tmp_path, host):
    """A client that asks for its share of the node."""
    client = ManagerClient(tmp_path / "sock", "secret", patience=Patience(2.0, host.now, host.sleep), follow_host=True)
    yield client
    client.close()


def test_shares_of_the_node_come_with_the_attachment_and_between_answers(serve, follower):
    given = OK | {"host": {"cpu_milli": 3000, "memory_bytes": 5}}
    server = serve([given, messages(resize_message(HostShare(4000, 6)), resize_message(HostShare(5000, 0))), OK])
    follower.attach(0)
    assert server.received[0][0]["host"] is True
    assert follower.new_share() == HostShare(3000, 5)
    assert follower.new_share() is None
    follower.lease(0, 50 * MS, 90 * MS)
    assert next(share for share in iter(follower.new_share, 0) if share) == HostShare(5000, 0)
    assert follower.new_share() is None
    follower.finish(1)


def test_a_manager_that_knows_no_shares_says_nothing_of_them(serve, follower):
    serve([OK, OK])
    follower.attach(0)
    assert follower.new_share() is None
    follower.reserve(1, 2)
    assert follower.new_share() is None


def test_a_share_that_was_changed_while_the_manager_was_away_comes_with_the_next_attachment(serve, follower):
    serve([OK], [OK | {"host": {"cpu_milli": 0, "memory_bytes": 9}}, None])
    follower.attach(0)
    lose(follower)
    follower.lease(1, 50 * MS, 150 * MS)
    assert follower.new_share() == HostShare(0, 9)


def test_looking_for_a_share_on_a_connection_that_is_gone_is_no_error(serve, follower):
    serve([OK], [OK, None])
    follower.attach(0)
    lose(follower)
    assert follower.new_share() is None
    assert follower.lease(1, 50 * MS, 150 * MS) == Lease(150 * MS, 200 * MS)


@pytest.mark.parametrize("share", [5, {"cpu_milli": -1}, {"cpu_milli": "4"}])
def test_a_share_that_is_none_is_an_error(serve, follower, share):
    serve([OK | {"host": share}])
    with pytest.raises(ProtocolError, match=r"field '(host|cpu_milli)'"):
        follower.attach(0)


def test_a_wrong_share_between_answers_is_an_error_and_the_connection_is_closed(serve, follower):
    serve([OK, messages({"op": "resize", "cpu_milli": "4"}, OK)], [OK, None])
    follower.attach(0)
    follower.reserve(1, 2)
    with pytest.raises(ProtocolError, match="field 'cpu_milli'"):
        follower.new_share()
    follower._memory = None
    assert follower.lease(1, 50 * MS, 150 * MS) == Lease(150 * MS, 200 * MS)


def test_a_stop_is_read_before_each_step(serve, client):
    serve([OK, None, messages(OK, stop(120)), OK])
    client.attach(0)
    assert client.lease(0, 50 * MS, 90 * MS) == Lease(90 * MS, 140 * MS)
    client.reserve(1, 2)
    assert client.lease(1, 50 * MS, 140 * MS) == Lease(140 * MS, 140 * MS, stop=True)
    client.release(1)


def test_a_job_goes_on_while_the_manager_is_away_and_reports_afterwards(serve, client):
    server = serve([OK, None], [OK, None, OK])
    client.attach(0)
    client.lease(0, 50 * MS, 90 * MS)
    lose(client)
    assert client.lease(1, 50 * MS, 150 * MS) == Lease(150 * MS, 200 * MS)
    client.finish(2)
    attachment, reported, _ = server.received[1]
    assert (attachment["steps_done"], attachment["after_ns"]) == (1, 90 * MS)
    assert reported == report(1, 150, 200)
    assert client.reconnects == 1


def test_it_dies_again_and_again_without_delaying_the_job(serve, client, host):
    server = serve([OK], [None], [], [OK, None, None])
    client.attach(0)
    lose(client)
    for step in range(4):
        assert client.lease(step, 50 * MS, step * 50 * MS) == Lease(step * 50 * MS, (step + 1) * 50 * MS)
    server.close()
    assert [ops(session) for session in server.received] == [["attach"], ["attach"], [], ["attach", "report", "report"]]
    assert server.received[3][1:] == [report(1, 0, 100), report(2, 100, 150)]  # of the steps before, too
    assert host.sleeps == []


def test_memory_is_reserved_again_with_the_connection(serve, client):
    server = serve([OK, OK], [OK, OK, None])
    client.attach(0)
    client.reserve(10, 20)
    lose(client)
    client.lease(0, 50 * MS, 90 * MS)
    server.close()
    assert server.received[1][1] == {"op": "reserve", "persistent_bytes": 10, "peak_bytes": 20}
    assert ops(server.received[1]) == ["attach", "reserve", "report"]


def test_memory_that_is_gone_after_a_reconnect_is_an_error_that_the_manager_hears_of(serve, client):
    full = error_reply(OutOfMemoryError("out of memory on GPU-0"))
    server = serve([OK, OK], [OK, full], [OK, OK])
    client.attach(0)
    client.reserve(10, 20)
    lose(client)
    with pytest.raises(OutOfMemoryError, match="out of memory on GPU-0"):
        client.lease(0, 50 * MS, 90 * MS)
    client.fail("out of memory on GPU-0")
    assert ops(server.received[2]) == ["attach", "fail"]


@pytest.mark.parametrize("end", ["finish", "release"])
def test_the_end_needs_no_memory(serve, client, end):
    server = serve([OK, OK, None], [OK, OK])
    client.attach(0)
    client.reserve(10, 20)
    getattr(client, end)(7)
    assert ops(server.received[1]) == ["attach", end]
    assert server.received[1][0]["steps_done"] == 7


def test_the_reply_to_finish_was_lost(serve, client):
    server = serve([OK, None], [{"ok": True, "ended": "finished", "devices": []}])
    client.attach(0)
    client.finish(7)
    assert ops(server.received[1]) == ["attach"]


def test_finished_here_but_revoked_there(serve, client):
    serve([OK, None], [{"ok": True, "ended": "failed", "devices": []}])
    client.attach(0)
    with pytest.raises(RefusedError, match=r"the grant of job 'job-1' has ended otherwise \(failed\)"):
        client.finish(7)


@pytest.mark.parametrize(
    "request_", [lambda c: c.lease(1, 50, 90), lambda c: c.reserve(1, 2)], ids=["lease", "reserve"]
)
def test_the_grant_ended_while_the_manager_was_away(serve, client, request_):
    serve([OK], [{"ok": True, "ended": "failed", "devices": []}])
    client.attach(0)
    lose(client)
    with pytest.raises(RefusedError, match=r"the grant of job 'job-1' has ended \(failed\)"):
        request_(client)
    client.fail("revoked")  # it is known already: no third connection is needed


def test_attaching_to_a_grant_that_has_ended(serve, client):
    serve([{"ok": True, "ended": "released", "devices": []}])
    with pytest.raises(RefusedError, match=r"has ended \(released\)"):
        client.attach(0)


def test_an_error_reply_keeps_the_connection(serve, client, host):
    server = serve([OK, error_reply(OutOfMemoryError("full")), OK])
    client.attach(0)
    with pytest.raises(OutOfMemoryError, match="full"):
        client.reserve(10, 20)
    client.fail("full")
    assert len(server.received) == 1
    assert host.sleeps == []


def test_a_refused_token_is_not_asked_for_again(serve, client, host):
    serve([error_reply(RefusedError("unknown token"))])
    with pytest.raises(RefusedError, match="unknown token"):
        client.attach(0)
    assert host.sleeps == []


@pytest.mark.parametrize(
    "garbage",
    [b"HTTP/1.1 400 Bad\r\n", encode({"a": 1})[:4] + b"x" * 7, b"\x00\x00\x00\x02[]"],
    ids=["text", "body", "list"],
)
def test_garbage_ends_the_connection_and_the_failure_goes_over_another(serve, client, garbage):
    server = serve([OK, garbage, OK], [OK, OK])
    client.attach(0)
    client.lease(0, 50 * MS, 90 * MS)
    with pytest.raises(ProtocolError):
        while True:
            client.new_share()
    client.fail("garbage")
    assert ops(server.received[1]) == ["attach", "fail"]


def test_giving_up_without_having_attached_says_nothing_about_steps(serve, client):
    server = serve([OK, OK])
    client.fail("no profile for this GPU; " + "x" * 5000)
    attachment, failure = server.received[0]
    assert "steps_done" not in attachment
    assert len(failure["reason"]) == 2000


def test_patience_ends(client, host):
    with pytest.raises(ManagerUnavailableError, match="nobody answers at"):
        client.attach(0)
    assert 2_000_000_000 < host.time_ns < 2_500_000_000
    assert host.sleeps[:3] == [5_000_000, 10_000_000, 20_000_000]
    assert max(host.sleeps) == 200_000_000


def test_a_job_gives_up_when_the_manager_has_been_away_for_longer_than_its_patience(serve, client, host):
    serve([OK])
    client.attach(0)
    lose(client)
    client.lease(0, 50 * MS, 90 * MS)
    host.time_ns += 1_900_000_000
    client.lease(1, 50 * MS, 150 * MS)
    host.time_ns += 200_000_000
    with pytest.raises(ManagerUnavailableError, match="nobody answers"):
        client.lease(2, 50 * MS, 200 * MS)
    assert host.sleeps  # it has waited for it once more


def test_a_manager_that_hangs_is_away_too(serve, client, host, monkeypatch):
    monkeypatch.setattr(client_module, "_LEAST_ANSWER_S", 0.05)
    hanging = ManagerClient(client._path, "secret", "job-1", patience=Patience(0.01, host.now, host.sleep))
    server = serve([OK, None, None])
    hanging.attach(0)
    host.time_ns -= 10**9  # the client's time stands still while a real socket times out
    with pytest.raises(ManagerUnavailableError, match=r"timed out|closed|nobody answers"):
        hanging.reserve(1, 2)
    hanging.close()
    assert server.received


def test_a_manager_that_accepts_and_does_not_answer_delays_no_step(serve, client, monkeypatch):
    monkeypatch.setattr(client_module, "_LEAST_ANSWER_S", 0.05)
    job = ManagerClient(client._path, "secret", "job-1", patience=Patience(20.0))
    server = serve([OK])
    job.attach(0)
    lose(job)
    server.close()
    client._path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as silent, contextlib.closing(job):
        silent.bind(str(client._path))
        silent.listen(8)
        began_s = time.monotonic()
        for step in range(5):
            assert job.lease(step, 50 * MS, step * 50 * MS) == Lease(step * 50 * MS, (step + 1) * 50 * MS)
        assert time.monotonic() - began_s < 10  # the patience is 20 s
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # it tried once only
            silent.accept()


ATTACHED = {
    "ok": True,
    "version": 3,
    "job_id": "job/0",
    "steps_done": 7,
    "shared": True,
    "devices": [{"uuid": "GPU-1", "index": 3, "gpu_type": "T", "memory_bytes": 5}],
}


@pytest.fixture
def nameless(tmp_path, host):
    client = ManagerClient(tmp_path / "sock", "secret", patience=Patience(2.0, host.now, host.sleep))
    yield client
    client.close()


def test_the_manager_says_which_job_it_is_and_where_it_goes_on(serve, nameless):
    server = serve([ATTACHED, None])
    nameless.attach()
    assert (nameless.job_id, nameless.steps_done) == ("job/0", 7)
    assert nameless.devices == (AttachedDevice("GPU-1", 3, "T", 5),)
    assert server.received[0][0] == {
        "op": "attach",
        "version": 3,
        "token": "secret",
        "after_ns": 0,
        "connection": "c.1",
    }


def test_once_connected_it_knows_best_how_far_it_is(serve, nameless):
    server = serve([ATTACHED, None], [ATTACHED | {"steps_done": 2}, None])
    nameless.attach()
    nameless.lease(7, 50 * MS, 90 * MS)
    lose(nameless)
    nameless.lease(8, 50 * MS, 150 * MS)
    assert server.received[1][0] == {
        "op": "attach", "version": 3, "token": "secret", "after_ns": 90 * MS, "job_id": "job/0", "steps_done": 8,
        "connection": "c.2"
    }  # fmt: skip
    assert nameless.steps_done == 8


def test_the_reply_to_a_first_attach_was_lost(serve, nameless):
    server = serve([None], [ATTACHED])
    nameless.attach()
    first, second = (session[0] for session in server.received)
    assert first | {"connection": "c.2"} == second
    assert nameless.steps_done == 7


def test_attaching_again_begins_another_run(serve, nameless):
    server = serve([ATTACHED], [ATTACHED | {"steps_done": 4}, None])
    nameless.attach()
    nameless.attach(4)
    nameless.lease(4, 50 * MS, 90 * MS)
    assert server.received[1][0]["steps_done"] == 4
    assert nameless.reconnects == 0


def test_a_lost_device_is_an_error_that_no_retry_helps(serve, nameless, host):
    lost = {"op": "lost", "resource": "GPU-1", "error": "device GPU-1 is lost: XID 79"}
    serve([ATTACHED, messages(OK, lost)], [error_reply(DeviceLostError("device GPU-1 is lost: XID 79"))])
    nameless.attach()
    nameless.reserve(1, 2)
    with pytest.raises(DeviceLostError, match="XID 79"):
        nameless.lease(7, 50, 90)
    assert host.sleeps == []


def test_a_report_that_is_refused_ends_the_run(serve, nameless):
    serve([ATTACHED, error_reply(DeviceLostError("device GPU-1 is lost: XID 79")), OK])
    nameless.attach()
    nameless.lease(7, 50 * MS, 90 * MS)
    with pytest.raises(DeviceLostError, match="XID 79"):
        while True:
            nameless.lease(8, 1, 140 * MS)


def test_a_further_process_names_its_session_and_counts_no_steps(serve, tmp_path, host):
    server = serve([ATTACHED | {"devices": [ATTACHED["devices"][0] | {"mode": "exclusive"}]}, None, OK])
    client = ManagerClient(tmp_path / "sock", "secret", session="rank 3", only=[3])
    client.attach()
    client.lease(0, 50 * MS, 90 * MS)
    client.reserve(1, 2)
    client.close()
    attachment, reported, _ = server.received[0]
    assert (attachment["session"], attachment["devices"], "steps_done" in attachment) == ("rank 3", [3], False)
    assert reported == {"op": "report", "from_ns": 90 * MS, "work_ns": 50 * MS, "until_ns": 140 * MS}


def test_a_device_that_another_process_begins_to_use_is_demanded_from_then_on(serve, nameless):
    exclusive = ATTACHED | {"devices": [ATTACHED["devices"][0] | {"mode": "exclusive"}]}
    shared_now = {"op": "mode", "resource": "GPU-1", "mode": "fifo"}
    server = serve([exclusive, None, messages(OK, shared_now), piece(8, 150, 200, "GPU-1"), OK])
    nameless.attach()
    assert nameless.lease(7, 50 * MS, 90 * MS) == Lease(90 * MS, 140 * MS)
    nameless.reserve(1, 2)
    assert nameless.lease(8, 50, 140) == Lease(150, 200)
    nameless.finish(9)
    assert ops(server.received[0]) == ["attach", "report", "reserve", "demand", "finish"]


def test_a_manager_that_asks_to_come_again_is_asked_again(serve, nameless, host):
    serve([error_reply(ManagerUnavailableError("too many"))], [ATTACHED])
    nameless.attach()
    assert len(host.sleeps) == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"devices": "all"}, "devices"),
        ({"devices": [3]}, "devices"),
        ({"devices": [{"uuid": "x"}]}, "index"),
        ({"steps_done": -1}, "steps_done"),
        ({"job_id": 3}, "job_id"),
        ({"ended": 3}, "ended"),
    ],
)
def test_an_attach_reply_that_is_not_the_contract(serve, nameless, wrong, field):
    serve([ATTACHED | wrong])
    with pytest.raises(ProtocolError, match=f"field '{field}'"):
        nameless.attach()


def test_closing_twice(serve, client):
    serve([OK])
    client.attach(0)
    client.close()
    client.close()


def shared(*uuids):
    """The reply to attach of a manager whose devices several jobs share."""
    devices = [
        {"uuid": uuid, "index": n, "gpu_type": "T", "memory_bytes": 9, "mode": "fifo"} for n, uuid in enumerate(uuids)
    ]
    return OK | {"devices": devices}


def piece(sequence, start_ns, end_ns, uuid="GPU-a"):
    return {"op": "piece", "resource": uuid, "sequence": sequence, "start_ns": start_ns, "end_ns": end_ns, "work_ns": 9}


def stop(at_ns, last=-1):
    return {"op": "stop", "at_ns": at_ns, "last": last}


def demanded(server, session=0):
    """The demands of one connection after attach."""
    return [
        (m["sequence"], m["resource"], m["ready_ns"], m["work_ns"], m["remaining_ns"])
        for m in server.received[session][1:]
        if m["op"] == "demand"
    ]


def test_time_of_a_shared_device_is_demanded_and_the_next_step_queued(serve, client):
    server = serve([shared("GPU-a"), piece(3, 100, 150), None, piece(4, 170, 220), OK])
    client.attach(3)
    assert client.lease(3, 50, 90, 150) == Lease(100, 150)
    client.queue(4, 50, 150, 100)
    assert client.lease(4, 50, 150, 100) == Lease(170, 220)
    client.finish(5)
    server.close()
    assert ops(server.received[0]) == ["attach", "demand", "demand", "report", "finish"]
    assert demanded(server) == [(3, "GPU-a", 90, 50, 150), (4, "GPU-a", 150, 50, 100)]
    assert [m.get("steps_done") for m in server.received[0]] == [3, 3, None, 4, 5]


def test_a_step_on_several_devices_ends_with_the_last(serve, client):
    serve([shared("GPU-a", "GPU-b"), None, messages(piece(0, 100, 150, "GPU-b"), piece(0, 95, 145))])
    client.attach(0)
    assert client.lease(0, 50, 90) == Lease(95, 150)


def test_a_step_that_changed_before_it_was_issued_is_demanded_anew(serve, client):
    server = serve([shared("GPU-a"), piece(0, 0, 50), None, piece(1, 60, 90)])
    client.attach(0)
    client.lease(0, 50, 0)
    client.queue(1, 50, 60)
    assert client.lease(1, 30, 60) == Lease(60, 90)
    server.close()
    assert demanded(server)[1:] == [(1, "GPU-a", 60, 50, 0), (1, "GPU-a", 60, 30, 0)]


def test_a_step_that_is_issued_long_after_this_one_is_not_queued(serve, client):
    server = serve([shared("GPU-a"), piece(0, 5, 50), OK])
    client.attach(0)
    client.lease(0, 50, 0)
    client.queue(1, 50, 601 * 10**9)
    client.finish(1)
    server.close()
    assert ops(server.received[0]) == ["attach", "demand", "finish"]


def test_a_stop_ends_the_wait_for_the_device(serve, client):
    serve([shared("GPU-a"), stop(120), OK])
    client.attach(0)
    assert client.lease(0, 50, 90) == Lease(120, 120, stop=True)
    client.release(0)


def test_a_stop_takes_effect_when_the_next_step_would_be_issued(serve, client):
    serve([shared("GPU-a"), piece(0, 90, 140), stop(120, 0)])
    client.attach(0)
    assert client.lease(0, 50, 90) == Lease(90, 140)
    assert client.lease(1, 50, 140) == Lease(140, 140, stop=True)


@pytest.mark.parametrize("answers", [(piece(0, 90, 140), stop(120, 0)), (stop(120, 0), piece(0, 90, 140))])
def test_a_step_that_was_begun_is_finished_before_a_stop(serve, client, answers):
    serve([shared("GPU-a"), messages(*answers), None])
    client.attach(0)
    assert client.lease(0, 50, 90) == Lease(90, 140)
    client.queue(1, 50, 140)
    assert client.lease(1, 50, 140) == Lease(140, 140, stop=True)


def test_a_new_run_forgets_the_stop_of_the_last_one(serve, client):
    serve([shared("GPU-a"), stop(120), OK], [shared("GPU-a"), piece(0, 200, 250)])
    client.attach(0)
    assert client.lease(0, 50, 90).stop
    client.release(0)
    client.attach(0)
    assert client.lease(0, 50, 200) == Lease(200, 250)


def test_the_manager_dies_while_a_job_waits_for_the_device(serve, client):
    server = serve([shared("GPU-a"), piece(0, 0, 50), None, None], [shared("GPU-a"), piece(1, 60, 110)])
    client.attach(0)
    client.lease(0, 50, 0)
    client.queue(1, 50, 50)
    assert client.lease(1, 50, 50) == Lease(60, 110)
    server.close()
    assert demanded(server, 1) == [(1, "GPU-a", 50, 50, 0)]
    attachments = [session[0] for session in server.received]
    assert [attachment["steps_done"] for attachment in attachments] == [0, 1]
    assert len({attachment["connection"] for attachment in attachments}) == 2


def test_what_has_been_answered_is_not_demanded_again(serve, client):
    server = serve(
        [shared("GPU-a", "GPU-b"), None, piece(0, 0, 50)], [shared("GPU-a", "GPU-b"), piece(0, 5, 55, "GPU-b")]
    )
    client.attach(0)
    assert client.lease(0, 50, 0) == Lease(0, 55)
    server.close()
    assert demanded(server, 1) == [(0, "GPU-b", 0, 50, 0)]


def test_a_demand_that_is_refused_ends_the_run(serve, client):
    serve([shared("GPU-a"), error_reply(DeviceLostError("device GPU-a is lost"))])
    client.attach(0)
    with pytest.raises(DeviceLostError, match="device GPU-a is lost"):
        client.lease(0, 50, 90)


@pytest.mark.parametrize("wrong", [{"start_ns": -1}, {"sequence": "1"}, {"resource": 7}])
def test_a_wrong_piece_names_the_field(serve, client, wrong):
    serve([shared("GPU-a"), piece(0, 0, 50) | wrong])
    client.attach(0)
    with pytest.raises(ProtocolError, match=f"field '{next(iter(wrong))}'"):
        client.lease(0, 50, 0)
