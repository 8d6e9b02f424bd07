"""Container images as tar files, written without an engine or a registry, the same bytes for the same content.

Format: the archive of `docker save` (Docker image specification v1.2: manifest.json, a configuration, a tar per layer),
which Docker and containerd load.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError

_COMPRESSION = 1  # a third of the size at 100 MB/s; more compression costs more than it saves here


@dataclass(frozen=True)
class ImageSpec:
    """How a container of the image starts."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"


def write_image(path: Path, tag: str, trees: Sequence[Path], spec: ImageSpec, also: Sequence[str] = ()) -> None:
    """Writes the image `tag`, with further names `also`, to `path`: a layer for each tree, owned by root, all times 0."""
    layers = [path.with_name(f"{path.name}.layer{index}") for index in range(len(trees))]
    try:
        digests = [_write_layer(layer, tree) for layer, tree in zip(layers, trees, strict=True)]
        configuration = json.dumps(_configuration(spec, digests), sort_keys=True).encode()
        name = hashlib.sha256(configuration).hexdigest()
        names = [f"{digest}/layer.tar" for digest in digests]
        manifest = json.dumps([{"Config": f"{name}.json", "RepoTags": [tag, *also], "Layers": names}]).encode()
        with tarfile.open(path, "w") as archive:
            for layer_name, layer in zip(names, layers, strict=True):
                archive.add(layer, layer_name, filter=_anonymous)
            for member, content in ((f"{name}.json", configuration), ("manifest.json", manifest)):
                information = tarfile.TarInfo(member)
                information.size = len(content)
                archive.addfile(information, io.BytesIO(content))
    finally:
        for layer in layers:
            layer.unlink(missing_ok=True)


def _write_layer(path: Path, tree: Path) -> str:
    """Writes a compressed layer, as each node stores it; returns the digest of the uncompressed tar."""
    with path.open("wb") as file, gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed:
        digest = _Digest(compressed)
        with tarfile.open(fileobj=digest, mode="w|", format=tarfile.PAX_FORMAT) as layer:  # type: ignore[call-overload]
            for path_in_tree in sorted(tree.rglob("*")):
                layer.add(path_in_tree, path_in_tree.relative_to(tree).as_posix(), recursive=False, filter=_anonymous)
    return digest.sha256.hexdigest()


class _Digest:
    """A writable file that hashes what is written and passes it on."""

    def __init__(self, inner: gzip.GzipFile) -> None:
        self.sha256 = hashlib.sha256()
        self._inner = inner

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._inner.write(data)


def _anonymous(information: tarfile.TarInfo) -> tarfile.TarInfo:
    information.uid = information.gid = 0
    information.uname = information.gname = ""
    information.mtime = 0
    return information


def _configuration(spec: ImageSpec, digests: Sequence[str]) -> dict[str, object]:
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Env": [f"{name}={value}" for name, value in spec.env.items()],
            "Entrypoint": list(spec.entrypoint),
            "Cmd": list(spec.command),
            "WorkingDir": spec.working_dir,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "emugpu"} for _ in digests],
    }


def reference_of(path: Path) -> str:
    """The first NAME:TAG in an archive of `docker save`. Raises ClusterError for any other file."""
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile("manifest.json")
            return str(json.load(member)[0]["RepoTags"][0]) if member else ""
    except (tarfile.TarError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ClusterError(f"{path}: is no image archive with a name (`docker save NAME:TAG` writes one)") from error
