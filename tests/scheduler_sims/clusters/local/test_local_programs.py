"""Programs as processes of a local cluster: their ends, their failures, stops, and that none is left behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_sims.clusters.local import LocalOptions, programs
from scheduler_sims.experiment import Experiment
from scheduler_sims.record import RunRecord

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
KNOTS = {"knots": [{"batch": 8, "forward_s": 0.1, "backward_s": 0.1, "start_s": 0.5}]}
MINE = {
    "sample_bytes": 0,
    "memory": {"knots": [{"batch": 8, "peak_bytes": 10**9, "persistent_bytes": 10**8}]},
    "gpus": {"T4": KNOTS},
}
CLUSTER = "nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]"


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The programs of these tests use no GPU, so that the emulated CUDA libraries needn't be compiled."""
    monkeypatch.setattr(programs, "built", lambda: tmp_path)
    monkeypatch.setattr(
        programs.launch, "environment", lambda _libraries, settings, _environ: {"SETTINGS": str(settings)}
    )


@pytest.fixture
def observe(tmp_path: Path) -> Callable[..., RunRecord]:
    """The workload has a row for each program: submission, steps, and code, in which COMMAND is what Python runs."""

    def observe(*rows: tuple[float, int, str], policy: str = "fifo", resumes: str = "no") -> RunRecord:
        lines = ["job_id,submit_s,model,batch_size,steps,resumes,program"]
        for number, (submit_s, steps, code) in enumerate(rows):
            path = tmp_path / f"program-{number}.py"
            path.write_text(code)
            lines.append(f"j{number},{submit_s},mine,8,{steps},{resumes},{sys.executable} {path} {{steps}} {{batch}}")
        (tmp_path / "w.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / "c.yaml").write_text(CLUSTER)
        (tmp_path / "mine.json").write_text(json.dumps({"models": {"mine": MINE}}))
        profiles = tmp_path / "mine.json"
        experiment = Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml", profiles=profiles)
        return experiment.observe(policy, LocalOptions(profiles=str(profiles)))

    return observe


def test_the_program_s_end_is_the_job_s(observe: Callable[..., RunRecord], tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = (
        "import os, sys, time\n"
        f"open({str(seen)!r}, 'w').write(' '.join(sys.argv[1:]) + '\\n' + open(os.environ['SETTINGS']).read())\n"
        "time.sleep(0.3)\n"
    )
    record = observe((0.0, 7, code))
    (job,) = record.jobs
    assert job.status == "finished" and job.finish_s is not None and job.finish_s >= 0.3
    arguments, *settings = seen.read_text().splitlines()
    assert arguments == "7 8"
    assert any(line.startswith("token ") for line in settings) and any(line.startswith("clock ") for line in settings)
    assert sum(line.startswith("device ") for line in settings) == 1 and any("Tesla-T4" in line for line in settings)


def test_a_program_that_fails_says_why(observe: Callable[..., RunRecord]) -> None:
    record = observe(
        (0.0, 7, "import sys; sys.stderr.write('first\\nno such data set\\n'); sys.exit(3)"), (0.0, 1, "pass")
    )
    failed, other = record.jobs
    assert (failed.status, other.status) == ("failed", "finished")
    assert failed.reason == "the program ended with exit status 3: no such data set"


@pytest.mark.parametrize(("resumes", "runs"), [("no", 2), ("yes", 2)])
def test_a_shorter_job_stops_a_program_which_runs_again(
    observe: Callable[..., RunRecord], tmp_path: Path, resumes: str, runs: int
) -> None:
    """The first program runs until it finds that it has run before."""
    notes = tmp_path / "notes"
    long = (
        f"import os, time\nbefore = os.path.exists({str(notes)!r})\n"
        f"open({str(notes)!r}, 'a').write('begun\\n')\ntime.sleep(0 if before else 60)\n"
    )
    record = observe((0.0, 300, long), (1.0, 2, "pass"), policy="srtf", resumes=resumes)
    assert [job.status for job in record.jobs] == ["finished"] * 2
    assert record.jobs[0].preemptions == 1 and notes.read_text().splitlines() == ["begun"] * runs


def test_no_program_survives_its_cluster(observe: Callable[..., RunRecord], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    endless = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    policy = tmp_path / "ending.py"
    policy.write_text(
        "import os\nfrom scheduler_sims.policies.fifo import Fifo\n"
        "class Ending(Fifo):\n    def plan(self, view):\n"
        "        if view.now_s > 1:\n            raise KeyboardInterrupt\n        return super().plan(view)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        observe((0.0, 300, endless), (1.5, 1, "pass"), policy=f"{policy}:Ending")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
