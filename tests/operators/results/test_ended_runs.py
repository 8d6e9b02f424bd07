"""Runs that have ended: their namespace is deleted, and the store still has their jobs."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer
from operators.jobs.cluster_cache import pod_of_interest
from operators.jobs.observer import ClusterView, Observer
from operators.kube.timestamps import rfc3339, rfc3339_micro
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob
from operators.results.keeper import ResultKeeper
from operators.results.metrics import ResultMetrics
from operators.results.reading import ResultReader
from operators.results.store import Batch, ResultStore
from tests.support.event_streams import EventStream

S = 1_000_000_000
T0 = 1_700_000_000 * S
RUN = "emugpu-exp-7c-2"
OFFERS = (NodeOffer("w1", 8000, 64 * GIB, (("Tesla_V100-PCIE-32GB", 32 * GIB),) * 4),)


def emujob(namespace: str, policy: str) -> dict[str, Any]:
    forecast = {"seconds": 12.5, "by": "las", "at": rfc3339_micro(T0)}
    annotations = {"emugpu.dev/policy": policy, "emugpu.dev/predicted": json.dumps(forecast)}
    labels = {"emugpu.dev/experiment": "7c-2"}
    metadata = {"name": "bert", "namespace": namespace, "uid": "emujob", "generation": 1}
    spec = {"steps": 10, "stepTime": "1s", "memory": "1Gi", "scheduler": {"name": "exp-7c-2", "actuator": "jobs"}}
    status = {"submittedAt": rfc3339_micro(T0)}
    return {"metadata": metadata | {"annotations": annotations, "labels": labels}, "spec": spec, "status": status}


def plain(kind: str) -> dict[str, Any]:
    """A Pod or a Job that holds two devices and has nothing to do with EmuJobs."""
    metadata = {"name": f"plain-{kind}", "namespace": RUN, "uid": kind, "creationTimestamp": rfc3339(T0)}
    limits = {"limits": {"emugpu.dev/emuGPU": "2"}}
    spec = {"nodeName": "w1", "containers": [{"name": "t", "resources": limits}]}
    return {"metadata": metadata, "spec": spec if kind == "pod" else {"template": {"spec": spec}}, "status": {}}


@pytest.mark.parametrize("archived", [False, True])
def test_an_ended_run_keeps_jobs_devices_predictions_and_policy(tmp_path, archived):
    now_ns, path = T0, tmp_path / "results.db"
    results = ResultKeeper(
        lambda: ResultStore(path), ResultMetrics(CollectorRegistry()), lambda: now_ns, lambda: now_ns
    )
    observer, node, loose = (
        Observer(results, ProfileTable.bundled()),
        EventStream("w1", namespace=RUN),
        EventStream("w2", namespace=RUN),
    )
    view = ClusterView(
        [EmuJob.read(emujob(RUN, "las:threshold_s=300"), T0)],
        [BatchJob.read(plain("job"), T0)],
        [pod_of_interest(plain("pod"), T0)],
        OFFERS,
        T0,
    )
    observer.look(view)
    results.round()
    for key, devices in (("emujob/0", "GPU-1,GPU-2"), ("job/0", "GPU-3"), ("pod", "GPU-4")):
        node.tell("attached", 1, key=key, detail=devices, pod=f"p-{key}")
        node.tell("released", 4, 4, key=key, pod=f"p-{key}")
        loose.tell("attached", 5, 4, key=key, from_step=4, detail=devices + "9", pod=f"q-{key}")
        loose.tell("finished", 11, 10, key=key, pod=f"q-{key}")
    with closing(ResultStore(path)) as collector:
        batch = Batch((*node.events, *loose.events))
        collector.write(batch)
    results.stored(batch)
    results.round()
    now_ns += 30 * S
    observer.look(ClusterView([], [], [], OFFERS, now_ns))  # the namespace is deleted with all that was in it
    results.round()
    if archived:
        now_ns += 7200 * S
        results.round()
    results.close()
    with closing(ResultReader.open(path)) as reader:
        found = {result.facts.kind: result for result in reader.jobs()}
        prediction = reader.prediction("emujob")
        events = reader.events("emujob")
    assert bool(events) is not archived
    assert prediction is not None and (prediction.seconds, prediction.by) == (12.5, "las")
    facts = found["EmuJob"].facts
    assert (facts.policy, facts.experiment, facts.namespace) == ("las:threshold_s=300", "7c-2", RUN)
    for kind, devices in (("EmuJob", "GPU-1,GPU-2"), ("Job", "GPU-3"), ("Pod", "GPU-4")):
        result = found[kind]
        assert (result.outcome, result.jct_s, result.preemptions) == ("finished", 11, 1), kind
        assert [(run.node, ",".join(run.devices), run.begin_ns - T0, run.end_ns - T0) for run in result.runs] == [
            ("w1", devices, S, 4 * S),
            ("w2", devices + "9", 5 * S, 11 * S),
        ]


def test_outside_of_runs_the_policy_is_the_schedulers_name(tmp_path):
    """There anybody may write annotations."""
    results = ResultKeeper(
        lambda: ResultStore(tmp_path / "r.db"), ResultMetrics(CollectorRegistry()), lambda: T0, lambda: T0
    )
    observer = Observer(results, ProfileTable.bundled())
    observer.look(ClusterView([EmuJob.read(emujob("lab", "las"), T0)], [], [], OFFERS, T0))
    results.round()
    outcome = results.outcome("emujob")
    results.close()
    assert outcome is not None and outcome.result.facts.policy == "exp-7c-2"
