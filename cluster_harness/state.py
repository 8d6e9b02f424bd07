"""What is stored about a cluster between two commands: a directory for each cluster, below the cache."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cluster_harness.request.spec import ClusterSpec
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.files import write_whole

KIND = "kind"
EXISTING = "existing"


@dataclass(frozen=True)
class ClusterState:
    """`way`: KIND or EXISTING. `on_the_spot`: its node image was built here. `complete`: all its nodes were created.

    `images`: references by image name. `namespace_uid`: of the chart's namespace if `up` created it, so that `down` deletes
    it; "" if it existed before.
    """

    spec: ClusterSpec
    way: str
    on_the_spot: bool = False
    kubeconfig: str = ""
    context: str = ""
    complete: bool = False
    images: dict[str, str] = field(default_factory=dict)
    namespace_uid: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ClusterState:
        """Parses the output of `to_json`. Raises ValueError, KeyError or TypeError for anything else."""
        content = json.loads(text)
        return replace(cls(**content), spec=ClusterSpec.from_json(json.dumps(content["spec"])))


class ClusterDirectory:
    """<cache>/clusters/<name>: state, kubeconfig, kind's configuration, the log."""

    def __init__(self, cache_root: Path, name: str) -> None:
        self.path = cache_root / "clusters" / name
        self.kubeconfig = self.path / "kubeconfig"
        self.log = self.path / "log"
        self._file = self.path / "cluster.json"

    def load(self) -> ClusterState | None:
        """The state; None if there is no such cluster. Raises ClusterError for a damaged file."""
        try:
            return ClusterState.from_json(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"{self._file}: is damaged ({error}); delete it, then run `emugpu cluster down` again"
            ) from error

    def save(self, state: ClusterState) -> None:
        """Replaces the file atomically."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, state.to_json(), sync=False)

    def forget(self) -> None:
        """Removes the state of a cluster that no longer exists; the log stays."""
        self._file.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def cluster_names(cache_root: Path) -> list[str]:
    """All clusters with a state, complete or not."""
    return sorted(path.parent.name for path in (cache_root / "clusters").glob("*/cluster.json"))
