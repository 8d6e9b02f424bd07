"""The client and the stages of a step: what it demands when, also after a lost connection, and at several managers at once."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.client import ManagerClient, Patience
from emulator_runtime.ipc.frames import encode
from emulator_runtime.workloads.several_managers import SeveralManagers

OK = {"ok": True}
TIMES = StepTimes(3, 300, input_ns=5, stages=StageTimes(20, 10, 8))
RESOURCES = [
    {"name": "storage", "devices": []},
    {"name": "link-0", "devices": ["GPU-a"]},
    {"name": "network", "devices": []},
]


def attached(mode="exclusive", resources=RESOURCES):
    """The reply to attach of a manager whose jobs share these resources."""
    device = {"uuid": "GPU-a", "index": 0, "gpu_type": "T", "memory_bytes": 9, "mode": mode}
    return OK | {"devices": [device], "resources": resources}


def piece(resource, sequence, start_ns, end_ns):
    times = {"start_ns": start_ns, "end_ns": end_ns, "work_ns": 9}
    return {"op": "piece", "resource": resource, "sequence": sequence, **times}


def messages(*several):
    return b"".join(encode(message) for message in several)


def demanded(server, session=0):
    """The demands of one connection."""
    return [
        (m["resource"], m["sequence"], m["ready_ns"], m["work_ns"])
        for m in server.received[session]
        if m["op"] == "demand"
    ]


@pytest.fixture
def client(tmp_path, host):
    client = ManagerClient(tmp_path / "sock", "secret", "job-1", patience=Patience(2.0, host.now, host.sleep))
    yield client
    client.close()


def test_without_resources_all_stages_are_the_jobs_own(serve, client):
    server = serve([attached(resources=[])])
    client.attach(0)
    client.prefetch(0, TIMES, 100)
    assert client.prefetched_ns() == 135
    client.exchange(0, TIMES, 200)
    assert client.exchanged_ns() == 208
    client.close()
    server.close()
    assert demanded(server) == []


def test_each_stage_is_demanded_when_the_one_before_has_an_end(serve, client):
    server = serve(
        [attached(), piece("storage", 0, 100, 140), piece("link-0", 0, 145, 160), piece("network", 0, 260, 270)]
    )
    client.attach(0)
    client.prefetch(0, TIMES, 100)
    assert client.prefetched_ns() == 160
    client.exchange(0, TIMES, 260)
    assert client.exchanged_ns() == 270
    server.close()
    assert demanded(server) == [("storage", 0, 100, 20), ("link-0", 0, 145, 10), ("network", 0, 260, 8)]


def test_an_input_goes_on_while_a_shared_device_is_awaited(serve, client):
    """The piece of the storage comes first, and the transfer is demanded before that of the device is there."""
    server = serve(
        [
            attached("fifo"),
            None,
            piece("storage", 1, 100, 120),
            None,
            messages(piece("GPU-a", 0, 150, 250), piece("link-0", 1, 125, 135)),
        ]
    )
    client.attach(0)
    client.demand(0, 100, 100)
    client.prefetch(1, TIMES, 100)
    assert client.lease(0, 100, 100) == Lease(150, 250)
    assert client.prefetched_ns() == 135
    server.close()
    assert demanded(server) == [("GPU-a", 0, 100, 100), ("storage", 1, 100, 20), ("link-0", 1, 125, 10)]


def test_what_was_not_answered_is_demanded_again_on_a_new_connection(serve, client):
    server = serve(
        [attached(), piece("storage", 0, 100, 140), None],
        [attached(), piece("link-0", 0, 145, 160)],
    )
    client.attach(0)
    client.prefetch(0, TIMES, 100)
    assert client.prefetched_ns() == 160
    server.close()
    assert demanded(server, 1) == [("link-0", 0, 145, 10)]


def test_a_run_that_is_to_stop_prepares_nothing_more(serve, client):
    """A job that is to stop at 150 doesn't issue the step at 200, so it doesn't begin the input of the step after it."""
    server = serve([messages(attached(), {"op": "stop", "at_ns": 150, "last": -1}), OK])
    client.attach(0)
    while client._stop is None:
        client.new_share()
    client.prefetch(1, TIMES, 20_000_200)
    assert client.lease(0, 100, 20_000_200).stop
    client.release(0)
    server.close()
    assert demanded(server) == []


def test_a_new_run_forgets_what_the_last_one_was_preparing(serve, client):
    server = serve([attached(), None], [attached(), OK])
    client.attach(0)
    client.prefetch(0, TIMES, 100)
    client.attach(5)
    client.finish(5)
    server.close()
    assert demanded(server, 1) == []


def test_what_the_node_has_no_longer_when_the_job_comes_back_is_its_own(client):
    """The pool's storage and link were removed while the manager was away: the rest of the input takes its own time."""
    client._take(attached())
    client.prefetch(0, TIMES, 100)
    assert [(m["resource"], m["work_ns"]) for m in client._stages.outstanding()] == [("storage", 20)]
    client._take(attached(resources=[RESOURCES[2]]))
    assert client._stages.outstanding() == []
    assert client.prefetched_ns() == 135
    client.exchange(0, TIMES, 200)
    assert [m["resource"] for m in client._stages.outstanding()] == ["network"]


def test_nobody_awaits_what_was_not_begun(client):
    with pytest.raises(ValueError, match="no stage was begun"):
        client.prefetched_ns()


class Answering:
    """A client's channel whose answers come when it is waited for, each together with those of other channels."""

    ended = False

    def __init__(self):
        self.sent, self.notified = [], []

    def send(self, *several):
        self.sent += several

    def notifications(self):
        taken, self.notified = self.notified, []
        return taken

    def read_already(self):
        return None

    def close(self):
        """Nothing is open."""


def test_stages_on_one_node_go_on_while_those_of_another_are_awaited(tmp_path):
    """Node b fetches fast and node a slowly; the transfer on b is demanded when its fetch has ended."""
    channels = [Answering(), Answering()]
    script = iter(
        [
            (1, piece("storage", 0, 0, 20)),
            (1, piece("link-0", 0, 25, 35)),
            (0, piece("storage", 0, 0, 50)),
            (0, piece("link-0", 0, 55, 65)),
        ]
    )
    seen = []

    class Scripted:
        def watch(self, name, channel):
            """Nothing to prepare."""

        def wait_for_message(self, *waited):
            assert set(waited) == set(channels)
            seen.append([len(channel.sent) for channel in channels])
            number, message = next(script)
            channels[number].notified.append(message)

    clients = [ManagerClient(tmp_path / name, "secret", "job", messages=Scripted()) for name in "ab"]
    for client, channel in zip(clients, channels, strict=True):
        client._take(attached())
        client._channel = channel
    several = SeveralManagers(clients)
    several.prefetch(0, TIMES, 0)
    assert several.prefetched_ns() == 65
    assert seen == [[1, 1], [1, 2], [1, 2], [2, 2]]
