"""Checkpoints: what was saved is loaded, a bad file is named together with the fix."""

import os

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.workloads.checkpoint import Checkpoint


def test_no_file_means_no_step(tmp_path):
    assert Checkpoint(tmp_path / "job.json").load() == 0


def test_the_last_save_counts_and_leaves_nothing_else(tmp_path):
    checkpoint = Checkpoint(tmp_path / "job.json")
    checkpoint.save(7)
    checkpoint.save(3)
    assert checkpoint.load() == 3
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_a_crash_while_saving_leaves_the_old_one(tmp_path):
    Checkpoint(tmp_path / "job.json").save(7)
    (tmp_path / ".job.json.emugpu").write_text('{"steps_d')
    assert Checkpoint(tmp_path / "job.json").load() == 7
    Checkpoint(tmp_path / "job.json").save(8)
    assert Checkpoint(tmp_path / "job.json").load() == 8
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "volume").mkdir()
    link = tmp_path / "job.json"
    link.symlink_to("volume/mine")
    for steps in (7, 8):
        Checkpoint(link).save(steps)
        assert link.is_symlink()
        assert Checkpoint(tmp_path / "volume" / "mine").load() == Checkpoint(link).load() == steps
    assert [path.name for path in (tmp_path / "volume").iterdir()] == ["mine"]


def test_files_beside_it_stay(tmp_path):
    (tmp_path / "job.json.new").write_text("the user's")
    Checkpoint(tmp_path / "job.json").save(1)
    assert (tmp_path / "job.json.new").read_text() == "the user's"


def test_jobs_whose_names_differ_behind_a_dot_do_not_share_the_temporary_file(tmp_path):
    (tmp_path / ".job.1.emugpu").mkdir()  # in the way of job.1 only
    Checkpoint(tmp_path / "job.2").save(5)
    assert Checkpoint(tmp_path / "job.2").load() == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"7", b'{"samples_done"', b"\xff\xfe", b"null", b"[" * 100_000, b'{"steps": 7}'],
    ids=["empty", "no field", "list", "number", "cut off", "binary", "null", "deep", "other field"],
)
def test_not_a_checkpoint(tmp_path, content):
    (tmp_path / "job.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"^{tmp_path}/job.json: is not a checkpoint \(.+\); remove it to start from"):
        Checkpoint(tmp_path / "job.json").load()


@pytest.mark.parametrize("steps", ["-1", "1.5", "true", '"3"', "null"])
def test_not_a_number_of_samples(tmp_path, steps):
    (tmp_path / "job.json").write_text(f'{{"samples_done": {steps}}}')
    with pytest.raises(InputError, match="samples_done must be a whole number >= 0, not "):
        Checkpoint(tmp_path / "job.json").load()


def test_places_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(InputError, match=r"can't read the checkpoint \(Is a directory\); correct the path"):
        Checkpoint(tmp_path).load()
    with pytest.raises(InputError, match=r"can't write the checkpoint \(No such file or directory\); give a path"):
        Checkpoint(tmp_path / "missing" / "job.json").save(1)


def test_a_full_disk_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    Checkpoint(tmp_path / "job.json").save(7)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"can't write the checkpoint \(No space left on device\)"):
        Checkpoint(tmp_path / "job.json").save(8)
    assert Checkpoint(tmp_path / "job.json").load() == 7
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]
