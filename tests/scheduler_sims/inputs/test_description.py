"""A workload in figures, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator_runtime.profiles.catalogue import bundled_catalogue
from scheduler_sims.inputs.cluster_file import ClusterSpec, parse_cluster
from scheduler_sims.inputs.description import Distribution, Share, describe, gangs_of, measure
from scheduler_sims.inputs.workload import Workload, load_workload

TEXT = """job_id,user,submit_s,num_gpus,nodes,gpu_duration_s,model,batch_size,steps
b,ann,100,4,2,50,,,
a,bob,0,1,,200,,,
c,ann,400,1,,100,,,
m,eve,400,1,,,resnet50,64,10
"""


def workload(tmp_path: Path, text: str = TEXT) -> Workload:
    path = tmp_path / "w.csv"
    path.write_text(text)
    return load_workload(path)


def cluster(gpus: int) -> ClusterSpec:
    node = {"name": "n", "gpus": gpus, "gpu_type": "V100", "cpus": 8}
    return parse_cluster({"nodes": [node]}, "c", bundled_catalogue())


def test_without_a_cluster(tmp_path: Path) -> None:
    jobs = workload(tmp_path)
    measures = measure(jobs, None)
    assert (measures.submit_s, measures.interarrivals_s) == ((0, 100, 400, 400), [100, 300, 0])
    one = describe(measures, gangs_of(jobs), None)
    assert (one.jobs, one.span_s, one.gpu_s, one.load, one.gangs, one.unknown) == (
        4,
        400,
        4 * 50 + 200 + 100,
        None,
        1,
        1,
    )
    assert one.sizes == (Share("1", 3, 300), Share("4", 1, 200))
    assert one.users == (Share("ann", 2, 300), Share("bob", 1, 200), Share("eve", 1, 0))
    assert (one.durations_s.count, one.durations_s.p50, one.interarrivals_s.mean) == (3, 100, pytest.approx(400 / 3))


def test_with_a_cluster_models_have_durations_and_there_is_a_load(tmp_path: Path) -> None:
    jobs = workload(tmp_path)
    measures = measure(jobs, cluster(2))
    one = describe(measures, gangs_of(jobs), cluster(2))
    model_s = measures.durations_s[-1]
    assert model_s is not None and 0.1 < model_s < 100
    assert one.unknown == 0
    assert one.load == pytest.approx((500 + model_s) / (2 * 400))


def test_all_at_once_has_no_load(tmp_path: Path) -> None:
    jobs = workload(tmp_path, "job_id,gpu_duration_s\na,5\n")
    one = describe(measure(jobs, cluster(2)), 0, cluster(2))
    assert (one.span_s, one.load, one.interarrivals_s.count) == (0, None, 0)


def test_quantiles_are_interpolated() -> None:
    assert Distribution.of([1, 2, 3, 4, 5]) == Distribution(5, 3, 1, 1.4, 3, pytest.approx(4.6), pytest.approx(4.96), 5)
