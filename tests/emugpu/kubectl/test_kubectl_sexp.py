"""`kubectl emugpu experiment` with SchedulingExperiments: the report is made from what their runner keeps."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators.experiments.saved import SavedComparison, packed
from operators.kube.api import CONFIG_MAP, EXPERIMENT, ForbiddenError
from scheduler_sims.record import JobRecord, RunRecord
from scheduler_sims.reports.files import read_jobs_csv

Printed = Callable[..., tuple[int, str, str]]


def run(policy: str, repeat: int, ends_s: float) -> RunRecord:
    jobs = (JobRecord("a", "u", 0, 0.0, 1.0, ends_s, 0, ("w1/0",)), JobRecord("b", "u", 1, 0.0, 2.0, 2 * ends_s, 0, ()))
    return RunRecord(policy, "kubernetes" if repeat else "simulated", repeat, 1, ("w1",), jobs, ())


@pytest.fixture
def experiment(world: Any) -> Callable[..., None]:
    def experiment(namespace: str = "lab", runs: tuple[RunRecord, ...] = (), **status: Any) -> None:
        metadata = {"name": "nightly", "namespace": namespace, "uid": namespace}
        world.api.put(EXPERIMENT, {"metadata": metadata, "spec": {}, "status": status})
        if runs:
            kept = SavedComparison(
                "digest", 1, None, {"workload": "nightly", "jobs": 2, "cluster": "as its pools are"}, runs
            )
            data = {"runs.json.gz": base64.b64encode(packed(kept)).decode()}
            world.api.put(CONFIG_MAP, {"metadata": {**metadata, "name": "nightly-report"}, "binaryData": data})

    return experiment


def test_its_report_has_predicted_and_observed(
    experiment: Callable[..., None], printed: Printed, tmp_path: Path
) -> None:
    experiment(runs=(run("fifo", 0, 10.0), run("fifo", 1, 11.0), run("allox", 0, 8.0)), phase="Running")
    code, text, err = printed("experiment", "report", "nightly", "--out", str(tmp_path))
    assert (code, err) == (0, "") and "predicted" in text
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["policies"]["fifo"]["error"]["mean_jct"] == pytest.approx(-1 / 11)
    assert summary["policies"]["allox"]["observed"] is None
    assert summary["meta"]["workload"] == "nightly"
    assert len(read_jobs_csv(tmp_path / "jobs.csv")) == 6
    assert "allox" in (tmp_path / "report.html").read_text()


def test_without_a_report_its_state_is_reported(experiment: Callable[..., None], printed: Printed) -> None:
    experiment(phase="Queued", doing="waits for its turn, 1 before it")
    code, _, err = printed("experiment", "report", "nightly")
    assert code == 2
    assert "SchedulingExperiment lab/nightly has no report: it is Queued (waits for its turn, 1 before it)" in err


def test_of_two_namespaces_one_must_be_named(experiment: Callable[..., None], printed: Printed) -> None:
    for namespace in ("lab", "ops"):
        experiment(namespace, runs=(run(namespace, 1, 10.0),))
    code, _, err = printed("experiment", "report", "nightly")
    assert code == 2 and "nightly is in namespaces lab, ops; say which one with -n" in err


def test_the_list_names_them(experiment: Callable[..., None], printed: Printed) -> None:
    reason = {"type": "Failed", "status": "True", "message": "the cluster: lab/p use emulated devices"}
    experiment(phase="Failed", conditions=[reason])
    code, text, err = printed("experiment")
    assert code == 0 and "allox" in text
    assert "SchedulingExperiment lab/nightly: Failed, the cluster: lab/p use emulated devices" in err


def test_who_may_not_see_them_sees_the_rest(world: Any, printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    list_all = type(world.api).list

    async def refuse(api: Any, resource: Any, **options: Any) -> Any:
        if resource is EXPERIMENT:
            raise ForbiddenError("list schedulingexperiments: no")
        return await list_all(api, resource, **options)

    monkeypatch.setattr(type(world.api), "list", refuse)
    assert printed("experiment", "report", "b1")[0] == 0


def test_a_misspelt_name_is_reported(experiment: Callable[..., None], printed: Printed) -> None:
    experiment()
    assert "did you mean nightly?" in printed("experiment", "report", "nihgtly")[2]
