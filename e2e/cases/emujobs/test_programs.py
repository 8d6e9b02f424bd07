"""Jobs that run programs on a real cluster: how they end, and the example of traced PyTorch programs in pods."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.cases.conftest import ROOT
from e2e.cases.emujobs.test_scheduler import emujob, statuses
from e2e.cases.kube import Kubectl, eventually

pytestmark = [pytest.mark.alone, pytest.mark.long]

EXAMPLE = ROOT / "examples" / "traced-12"
IMAGE = "emugpu-torch:0.1.0"


def profile(step_s: float) -> dict[str, Any]:
    """Of a batch size of 1 on a V100."""
    knot = {"batch": 1, "forward_s": step_s / 2, "backward_s": step_s / 2, "start_s": 0.5}
    memory = {"knots": [{"batch": 1, "peak_bytes": 2**30, "persistent_bytes": 2**20}]}
    return {"sample_bytes": 0, "memory": memory, "gpus": {"V100": {"knots": [knot]}}}


def program(name: str, code: str, **more: Any) -> dict[str, Any]:
    """An EmuJob that runs this Python."""
    document = emujob(name, 1, 0, "none")
    scheduling = {"actuator": "none", "name": ""}
    work = {"steps": 4, "model": "mine", "batchSize": 1, "profiles": {"mine": profile(0.5)}}
    command = {"command": ["python3", "-c", code], **more}
    return {**document, "spec": {**work, "image": IMAGE, "program": command, "scheduler": scheduling}}


def test_a_program_ends_fails_or_is_invalid(kubectl: Kubectl) -> None:
    torch = (
        "import torch; assert torch.cuda.is_available(); torch.ones(8, device='cuda').sum(); torch.cuda.synchronize()"
    )
    wrong = program("wrong", "pass")
    wrong["spec"]["profiles"]["mine"]["memory"]["knots"] *= 2
    kubectl.create(program("good", torch), program("bad", "raise SystemExit(3)"), wrong)
    eventually(
        "all have ended",
        lambda: (
            {name: status.get("phase") for name, status in statuses(kubectl).items()}
            == {"good": "Succeeded", "bad": "Failed", "wrong": "Rejected"}
        ),
        within_s=180,
    )
    found = statuses(kubectl)
    assert found["good"]["stepsDone"] == 4 and found["good"]["observedJCTSeconds"] > 0
    reasons = {each["type"]: each for each in found["wrong"]["conditions"]}
    assert reasons["Accepted"]["reason"] == "InvalidProfile"
    assert "spec.profiles.mine.memory.knots[1].batch" in reasons["Accepted"]["message"]


def test_traced_programs_run_in_pods(admin: Kubectl, tmp_path: Path) -> None:
    """The cluster has other GPUs than the example was traced for. Its profiles name those here, and how long they take isn't
    compared. Two of the four programs: the wheel has no kernels for attention and embeddings on a V100."""
    document = json.loads((EXAMPLE / "profiles.json").read_text(encoding="utf-8"))
    lines = csv.DictReader((EXAMPLE / "workload.csv").read_text(encoding="utf-8").splitlines())
    rows = [{**line, "steps": "20"} for line in lines if line["model"] in ("resnet", "segmentation")][:4]
    workload, profiles, out = tmp_path / "w.csv", tmp_path / "p.json", tmp_path / "out"
    with workload.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for model in document["models"].values():
        model["gpus"]["V100"] = model["gpus"].pop("Tesla-T4")
    profiles.write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "emugpu", "compare", str(workload), "--on", "kubernetes", "--no-calibration"),
            *("--profiles", str(profiles), "--program-files", str(EXAMPLE / "programs"), "--policy", "fifo"),
            *("--kubeconfig", str(admin.kubeconfig), "--out", str(out)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    written = csv.DictReader((out / "jobs.csv").read_text(encoding="utf-8").splitlines())
    jobs = [row for row in written if row["cluster"] == "kubernetes"]
    assert len(jobs) == 4 and all(row["status"] == "finished" for row in jobs)
