"""Labels of a pod are claims of its creator: they give no access to the progress of a job in another namespace."""

from __future__ import annotations

from contextlib import closing

import pytest

from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.cgroup import PodCgroup
from sharing_manager.store.entries import furthest
from sharing_manager.store.outbox import Outbox
from tests.support.fake_node_api import pod_object

JOB_UID = "0f2b7c1e-6f2c-4f0e-9f55-3f3a5c1b7a11"
INDEX = {"batch.kubernetes.io/job-completion-index": "0"}


def identity(name, namespace, label):
    labels = {label: JOB_UID, **INDEX}
    pod = objects.pod(pod_object(name, f"uid-{name}", "n1", {"main": "c" * 64}, labels, namespace))
    return pod.identity(PodCgroup(pod.uid, "c" * 64))


@pytest.mark.parametrize("label", ["emugpu.dev/job-uid", "batch.kubernetes.io/controller-uid", "controller-uid"])
def test_a_pod_of_another_namespace_neither_raises_nor_reads_a_jobs_progress(pods, uuids, tmp_path, label):
    victim = pods.attach(pods.mint("t1", uuids[0]), identity("victim", "lab", label))
    pods.manager.finish(victim, 40)
    forger = pods.attach(pods.mint("t2", uuids[1]), identity("forger", "evil", label))
    assert forger.steps_done == 0
    pods.manager.finish(forger, 900)
    successor = identity("successor", "lab", label)
    assert pods.attach(pods.mint("t3", uuids[0]), successor).steps_done == 40
    with closing(Outbox(tmp_path / "pods-0.db", "n1", lambda: 1)) as outbox:
        shared = furthest(outbox.batch(100))  # what Redis stores as emugpu:progress, for the managers of other nodes
    assert shared[successor.job_key][0] == 40
    assert sorted(steps for steps, _ in shared.values()) == [40, 900]
