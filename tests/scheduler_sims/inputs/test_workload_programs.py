"""Jobs that run programs: the columns, and what they exclude."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import ModelWork, Program
from scheduler_sims.inputs.workload import load_workload


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def row(**cells):
    program = "python train.py --steps {steps} --batch {batch} --name 'two words'"
    given = {"job_id": "a", "model": "resnet50", "batch_size": "16", "steps": "20", "program": program, **cells}
    given = {name: cell for name, cell in given.items() if cell}
    return ",".join(given) + "\n" + ",".join(given.values()) + "\n"


def test_a_program_and_what_its_command_becomes(load):
    job = load(row(num_gpus="2", image="torch:1", resumes="yes")).jobs[0]
    words = ("python", "train.py", "--steps", "{steps}", "--batch", "{batch}", "--name", "two words")
    assert job.program == Program(words, resumes=True, image="torch:1")
    assert job.program.words(job.steps, 16)[3:6] == ("20", "--batch", "16")
    work = job.work["gpu"]
    assert isinstance(work, ModelWork) and work.starts
    assert not job.begins_anew and load(row()).jobs[0].begins_anew


def test_emulated_training_has_no_start(load):
    job = load(row(program="")).jobs[0]
    assert job.program is None and not job.work["gpu"].starts and not job.begins_anew


def test_a_longer_job_tells_its_program(load):
    (job,) = load(row()).stretched(2.5).jobs
    assert job.program.words(job.steps, 16)[3] == "50"
    with pytest.raises(
        InputError, match=r"--stretch: can't change the length of job 'a': its program has no \{steps\}"
    ):
        load(row(program="python train.py")).stretched(2)


@pytest.mark.parametrize(
    ("cells", "error"),
    [
        ({"program": "python 'train.py"}, r":2: program: isn't a command: No closing quotation"),
        (
            {"program": "", "image": "torch:1"},
            r":2: image: belongs to a program; give its command in the column program",
        ),
        ({"program": "", "resumes": "no"}, r":2: resumes: belongs to a program"),
        ({"resumes": "perhaps"}, r":2: resumes: must be yes or no, not 'perhaps'"),
        ({"cpu_duration_s": "5"}, r":2: program: needs a model, .* and no cpu_duration_s"),
        ({"model": "", "batch_size": "", "gpu_duration_s": "9"}, r":2: program: needs a model, whose profile says"),
        ({"max_gpus": "2"}, r":2: max_gpus: is for emulated training; a program does what it does"),
        ({"fetch_s": "0.1"}, r":2: fetch_s: is for emulated training"),
        ({"host_s": "0.1"}, r":2: host_s: is for emulated training"),
        ({"input_cpu_s": "0.1"}, r":2: input_cpu_s: is for emulated training"),
        ({"num_gpus": "2", "nodes": "2"}, r":2: nodes: a program runs on one node; leave nodes out"),
    ],
)
def test_what_a_program_excludes(load, cells, error):
    with pytest.raises(InputError, match=error):
        load(row(**cells))
