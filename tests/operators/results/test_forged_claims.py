"""What tenants claim about other people's jobs: labels of pods and of managers' logs change nobody else's figures."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from wsgiref.handlers import format_date_time

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.jobs import __main__ as jobs_program
from operators.jobs.settings import Settings
from operators.kube.api import EMUJOB, NODE, POD, POOL
from operators.kube.timestamps import rfc3339, rfc3339_micro
from operators.results.computing import job_result
from operators.results.reading import ResultReader
from operators.results.store import Batch
from sharing_manager.store.entries import Entry
from sharing_manager.store.redis_link import RedisLink
from tests.support.fake_api import FakeApi

S = 1_000_000_000
T0 = 1_700_000_000 * S
MANAGER_LABELS = {"app.kubernetes.io/name": "emugpu", "app.kubernetes.io/component": "node"}
HOUR_S = 3600


@pytest.fixture
def clock_an_hour_ahead():
    """A tenant's HTTP server; `asked` are the paths that somebody got from it."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, _timestamp=None):
            return format_date_time(wall_ns() / 1e9 + HOUR_S)

        def log_message(self, *_args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.asked = asked
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_tenants_pod_with_a_managers_labels_changes_no_completion_time(
    server, tmp_path, monkeypatch, clock_an_hour_ahead
):
    now_ns, path = wall_ns(), tmp_path / "results.db"
    submitted_ns = now_ns // S * S - 100 * S
    api = FakeApi()
    monkeypatch.setattr(api, "close", closed, raising=False)
    monkeypatch.setattr(jobs_program, "KubeApi", lambda: api)
    created = {"creationTimestamp": rfc3339(submitted_ns), "generation": 1}
    api.put(NODE, {"metadata": {"name": "w1", "uid": "n"}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}})
    api.put(POOL, {"metadata": {"name": "p", "uid": "p", **created}, "spec": {"gpus": [{"type": "V100", "count": 2}]}})
    job = {"metadata": {"name": "j", "namespace": "lab", "uid": "uid-j", **created}}
    status = {"submittedAt": rfc3339_micro(submitted_ns)}
    api.put(EMUJOB, job | {"spec": {"steps": 5, "model": "resnet50", "batchSize": 64}, "status": status})
    forger = {"name": "forger", "namespace": "tenant", "uid": "f", "labels": MANAGER_LABELS}
    api.put(POD, {"metadata": forger, "spec": {"nodeName": "w1"}, "status": {"podIP": "127.0.0.1"}})
    link = RedisLink(server.url, "URL", "w1")
    link.open()
    work = {"job_id": "uid-j/0", "job_key": "uid-j/0", "namespace": "lab", "pod": "j-0"}
    begin = Entry("w1", 1, 1, submitted_ns + 40 * S, kind="attached", from_step=0, steps_done=0, **work)
    end = Entry("w1", 2, 1, submitted_ns + 60 * S, kind="finished", from_step=0, steps_done=5, **work)
    link.append(100, [begin, end])
    link.close()
    settings = Settings("i", "me", redis_url=server.url, store=str(path), metrics_port=0)

    async def play():
        serving = asyncio.create_task(jobs_program._serve(settings))
        async with asyncio.timeout(30):
            while jct_s(path) is None:
                await api.wake()
                await asyncio.sleep(0.05)
        serving.cancel()
        await asyncio.wait([serving])

    asyncio.run(play())
    assert jct_s(path) == 60
    assert clock_an_hour_ahead.asked == []


async def closed():
    pass


def jct_s(path):
    """As the store has it; None while there is no store, or no end of the job in it."""
    with contextlib.suppress(ClusterError), closing(ResultReader.open(path)) as reader:
        result = reader.job("uid-j")
        return None if result is None else result.jct_s
    return None


def test_pods_of_another_namespace_add_nothing_to_a_job(teller, facts, store):
    """A pod's label may name any job's uid, and the managers' events and Kubernetes' then do so too."""
    own, forged = teller("n1"), teller("n2")
    for node in (own, forged):
        node.tell("attached", 10)
    own.tell("finished", 20, 5)
    forged.tell("finished", 12, 5)
    others = [replace(event, namespace="tenant") for event in forged.events]
    others += [replace(event, stream="kubernetes:forger", wall_ns=T0 + 90 * S, epoch=7) for event in others]
    store.note_job(facts(steps=5))
    store.write(Batch((*own.events, *others)))
    assert store.job("job") == job_result(facts(steps=5), own.events)
    assert store.job("job").jct_s == 20
    assert store.events("job") == own.events
