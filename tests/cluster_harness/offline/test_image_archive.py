"""Archives have what Docker and containerd look for, and the same bytes for the same content."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from cluster_harness.offline.image_archive import ImageSpec, write_image


def write(path: Path, mtime: int = 1) -> Path:
    tree = path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "sh").write_text("#!")
    (tree / "bin" / "sh").chmod(0o755)
    (tree / "bin" / "link").symlink_to("sh")

    os.utime(tree / "bin" / "sh", (mtime, mtime))
    return tree


def test_the_archive_is_a_docker_image(tmp_path: Path) -> None:
    spec = ImageSpec(entrypoint=["/bin/sh"], command=["-c"], env={"A": "b"}, working_dir="/w")
    write_image(tmp_path / "image", "name:tag", [write(tmp_path)], spec)
    with tarfile.open(tmp_path / "image") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        assert manifest["RepoTags"] == ["name:tag"]
        raw = archive.extractfile(manifest["Config"]).read()  # type: ignore[union-attr]
        assert manifest["Config"] == f"{hashlib.sha256(raw).hexdigest()}.json"
        configuration = json.loads(raw)
        (layer_name,) = manifest["Layers"]
        layer = gzip.decompress(archive.extractfile(layer_name).read())  # type: ignore[union-attr]
    assert configuration["config"] == {"Env": ["A=b"], "Entrypoint": ["/bin/sh"], "Cmd": ["-c"], "WorkingDir": "/w"}
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as content:
        members = {m.name: m for m in content}
    assert list(members) == ["bin", "bin/link", "bin/sh"]
    assert members["bin/sh"].mode == 0o755
    assert members["bin/link"].linkname == "sh"
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in members.values()} == {(0, 0, "", 0)}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, mtime in (("one", 1), ("two", 1_000_000)):
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "image", "name:tag", [write(tmp_path / name, mtime)], ImageSpec())
    assert (tmp_path / "one/image").read_bytes() == (tmp_path / "two/image").read_bytes()


def test_a_failure_leaves_no_layers(tmp_path: Path) -> None:
    tree = write(tmp_path)
    with pytest.raises(FileNotFoundError):
        write_image(tmp_path / "gone" / "image", "name:tag", [tree], ImageSpec())
    assert [p.name for p in tmp_path.iterdir()] == ["tree"]
