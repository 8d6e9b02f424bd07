"""What `kubectl emugpu` prints of a small cluster: the files in golden/, one per case, to be read as a user reads them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("golden")
CASES = {
    "top": ["top"],
    "top_wide": ["top", "nodes", "-o", "wide"],
    "top_csv": ["top", "nodes", "-o", "csv"],
    "top_json": ["top", "-o", "json"],
    "top_devices": ["top", "devices"],
    "top_devices_wide": ["top", "devices", "-o", "wide"],
    "top_jobs": ["top", "jobs"],
    "top_jobs_all": ["top", "jobs", "-A", "-o", "csv"],
    "jobs": ["jobs"],
    "jobs_all": ["jobs", "-A"],
    "jobs_wide": ["jobs", "-o", "wide", "--phase", "running,Preempted"],
    "jobs_csv": ["jobs", "--phase", "Succeeded", "--phase", "failed", "-o", "csv"],
    "jobs_json": ["jobs", "-n", "ops", "-o", "json"],
    "jobs_none": ["-n", "empty", "jobs"],
    "jobs_wrong_phase": ["jobs", "--phase", "Runing"],
    "gantt": ["gantt"],
    "gantt_all": ["gantt", "-A", "--idle"],
    "gantt_by_job": ["gantt", "--by", "job"],
    "gantt_since": ["gantt", "--since", "45s"],
    "gantt_json": ["gantt", "-n", "ops", "-o", "json"],
    "gantt_none": ["gantt", "-n", "empty"],
    "gantt_wrong_since": ["gantt", "--since", "soon"],
    "explain_running": ["explain", "bert-1"],
    "explain_queued": ["explain", "vgg-3"],
    "explain_preempted": ["explain", "alex-4"],
    "explain_rejected": ["explain", "huge-7"],
    "explain_new": ["explain", "new-8"],
    "explain_done": ["explain", "res-2"],
    "explain_json": ["explain", "cpu-5", "-o", "json"],
    "explain_unknown": ["explain", "bert"],
    "experiment": ["experiment"],
    "experiment_wide": ["experiment", "list", "-o", "wide"],
    "experiment_csv": ["experiment", "list", "-o", "csv"],
    "experiment_none": ["experiment", "list", "-n", "empty"],
    "experiment_report": ["experiment", "report", "b1"],
    "experiment_report_one": ["experiment", "report", "b1-3"],
    "experiment_unknown": ["experiment", "report", "b2"],
    "experiment_unnamed": ["experiment", "report"],
    "experiment_odd": ["experiment", "list", "b1"],
    "experiment_no_csv": ["experiment", "report", "b1", "-o", "csv"],
    "smi_node": ["smi", "w1"],
    "smi_untold": ["smi", "node/w3"],
    "smi_pod": ["smi", "bert-1-0-abcde"],
    "smi_pod_query": ["smi", "pod/bert-1-0-abcde", "--query-gpu=index,uuid,memory.used", "--format=csv,noheader"],
    "smi_apps": ["smi", "w2", "--query-compute-apps=pid,name,used_memory", "--format=csv"],
    "smi_json": ["smi", "pod/bert-1-0-abcde", "-o", "json"],
    "smi_no_gpus": ["smi", "c1"],
    "smi_holds_none": ["smi", "plain"],
    "smi_unknown": ["smi", "nobody"],
    "smi_no_node": ["smi", "node/nobody"],
    "smi_no_pod": ["smi", "pod/nobody", "-n", "ops"],
    "smi_wrong_kind": ["smi", "service/x"],
}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["jobs", "--every", "soon"], "kubectl emugpu jobs: error: argument --every: invalid float value: 'soon'"),
        (
            ["jobs", "-o", "yaml"],
            "kubectl emugpu jobs: error: argument -o/--output: invalid choice: 'yaml' (choose from ",
        ),
        (["gobs"], "kubectl emugpu: error: argument COMMAND: invalid choice: 'gobs' (choose from "),
        (["top", "--fan"], "kubectl emugpu top: error: unrecognized arguments: --fan"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str], says: str, printed: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = printed(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(says)
    assert err.endswith("; see --help\n")


@pytest.mark.parametrize("name", CASES)
def test_it_prints_the_golden_file(name: str, printed: Callable[..., tuple[int, str, str]]) -> None:
    """EMUGPU_WRITE_GOLDEN=1 writes the files anew; then look at them."""
    code, out, err = printed(*CASES[name])
    text, path = f"{out}--- stderr\n{err}--- status {code}\n", GOLDEN / f"{name}.txt"
    if os.environ.get("EMUGPU_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
