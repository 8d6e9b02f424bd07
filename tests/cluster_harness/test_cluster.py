"""A cluster's life with every program faked: what is done once, what is repeated, what is removed when something fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from cluster_harness import cluster as cluster_module
from cluster_harness.cache import Cache
from cluster_harness.cluster import Clusters, Request
from cluster_harness.engine import Engine
from cluster_harness.images import Image, ImageBuilder
from cluster_harness.kubectl import CONTROL_PLANE_LABEL
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.product.chart import POOL_LABEL
from cluster_harness.product.reshape import CONTROLLERS_LABEL
from cluster_harness.programs import Clients
from cluster_harness.request.flags import plan
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError, InputError


@dataclass
class Machine:
    """Stands for kind, kubectl and helm: which clusters there are, and what was run."""

    clusters: set[str] = field(default_factory=set)
    version: int = 1
    foreign: str = ""
    namespace: str = ""
    fail: Callable[[str], BaseException | None] = lambda _line: None
    installed: bool = False
    labels: dict[str, str] = field(default_factory=lambda: {"n1": "default", "n2": "default"})
    ran: list[str] = field(default_factory=list)

    def answer(self, words: list[str]) -> str | Done:
        line = " ".join(words)
        self.ran.append(line)
        if error := self.fail(line):
            raise error
        match words:
            case ["kind", "get", "clusters", *_]:
                return "\n".join(sorted(self.clusters))
            case ["kind", "get", "nodes", *_]:
                return "n1\nn2"
            case ["kind", "create", "cluster", "--name", name, *_]:
                self.clusters.add(name)
            case ["kind", "delete", "cluster", "--name", name, *_]:
                self.clusters.discard(name)
            case ["helm", "list", *_]:
                return "emugpu\n" if self.installed else ""
            case ["helm", "upgrade", *_]:
                self.installed = True
            case ["kubectl", *_, "label", "nodes", "--overwrite", "n1", "n2", change]:
                self.labels = dict.fromkeys(("n1", "n2"), change.partition("=")[2])
        if "emugpupools.emugpu.dev" in words:
            pool = {"metadata": {"name": "p", "generation": 2}, "status": {"observedGeneration": 2}}
            return json.dumps({"items": [pool]})
        if "namespace" in words and words[0] == "kubectl":
            self.namespace = "" if "delete" in words else self.namespace
            return self.namespace
        if "create" in words and words[0] == "kubectl":
            self.namespace = f"uid-{len(self.ran)}"
            return self.namespace
        if "configmap" in words:
            return json.dumps({"data": {"Corefile": ". {\n    errors\n}\n"}})
        return self.nodes() if words[0] == "kubectl" and "nodes" in words and "get" in words else ""

    def nodes(self) -> str:
        def node(name: str, index: int) -> dict[str, object]:
            pool = self.labels.get(name, "")
            labels = {CONTROL_PLANE_LABEL: ""} if index == 0 else {POOL_LABEL: pool, CONTROLLERS_LABEL: pool}
            address = {"type": "InternalIP", "address": f"10.0.0.{index}"}
            ready = {"type": "Ready", "status": "True"}
            status = {"addresses": [address], "conditions": [ready], "allocatable": {"emugpu.dev/emuGPU": "8"}}
            return {"metadata": {"name": name, "labels": labels}, "spec": {"podCIDR": f"10.{index}"}, "status": status}

        return json.dumps({"items": [node(f"n{index}", index) for index in range(3)]})

    def count(self, part: str) -> int:
        return sum(part in line for line in self.ran)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clusters(tmp_path: Path, machine: Machine, make_shell, steps, monkeypatch: pytest.MonkeyPatch) -> Clusters:  # type: ignore[no-untyped-def]
    shell = make_shell({"": machine.answer})
    engine = Engine(shell, "28.0")
    archive = tmp_path / "archive"
    archive.write_text("x")

    def build(builder: ImageBuilder) -> dict[str, Image]:
        return {name: Image(f"{name}:{machine.version}", archive) for name in ("emugpu", "emugpu-redis")}

    patched = {
        "ensure_engine": lambda *_: engine,
        "running_engine": lambda *_: engine,
        "clients": lambda *_: Clients(Path("kind"), Path("kubectl"), Path("helm")),
        "obtain_node_images": lambda *_: (NodeImages("c", "w"), False),
        "with_product": lambda images, *_: images,
        "CHECKOUT": tmp_path,
    }
    for name, value in patched.items():
        monkeypatch.setattr(cluster_module, name, value)
    monkeypatch.setattr(ImageBuilder, "build", build)
    monkeypatch.setattr(Clusters, "_shell", lambda *_: shell)
    (tmp_path / "Chart.yaml").write_text("")
    return Clusters(Cache(tmp_path / "cache"), steps)


def request(tmp_path: Path, name: str = "dev", nodes: int = 2, gpus: int = 8) -> Request:
    return Request(plan(name, nodes=nodes, gpus=gpus, gpu_type="V100"), chart=tmp_path)


def test_up_creates_loads_and_installs(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    state = clusters.up(request(tmp_path))
    assert machine.clusters == {"dev"}
    assert machine.count("ctr -n k8s.io images import") == 4  # two images, two nodes
    assert machine.count("helm upgrade --install") == 1
    assert state.complete and state.images["emugpu"] == "emugpu:1"
    assert clusters.state("dev") == state
    assert clusters.names() == ["dev"]


def test_up_again_repeats_nothing_that_is_done(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    clusters.up(request(tmp_path))
    machine.ran.clear()
    clusters.up(request(tmp_path))
    assert machine.count("kind create") == machine.count("images import") == 0
    assert machine.count("helm upgrade --install") == 1


def test_a_cluster_that_does_not_answer(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    clusters.up(request(tmp_path))
    machine.fail = lambda line: ClusterError("TLS handshake timeout") if "get nodes" in line else None
    with pytest.raises(ClusterError, match="is there and doesn't answer; was its engine restarted"):
        clusters.up(request(tmp_path))
    assert machine.clusters == {"dev"}


def test_a_changed_product_is_loaded_again(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    clusters.up(request(tmp_path))
    machine.ran.clear()
    machine.version = 2
    assert clusters.up(request(tmp_path)).images["emugpu"] == "emugpu:2"
    assert machine.count("images import") == 4


def test_an_image_that_the_installed_chart_would_not_find_is_refused(
    tmp_path: Path, clusters: Clusters, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    monkeypatch.setattr(ImageBuilder, "key", lambda _builder, name: f"{name == 'emugpu' and machine.version}")
    monkeypatch.setattr(ImageBuilder, "build_optional", lambda _builder, name: Image(f"{name}:of-its-own", archive))
    clusters.up(request(tmp_path))
    machine.ran.clear()
    clusters.load("dev", "emugpu-scheduler")
    assert machine.count("images import") == 2
    machine.version = 2
    message = "cluster 'dev' runs emugpu:1 and this checkout makes emugpu:2, .*`emugpu cluster up --name dev`"
    with pytest.raises(ClusterError, match=message):
        clusters.load("dev", "emugpu-scheduler")
    clusters.up(request(tmp_path))
    clusters.load("dev", "emugpu-scheduler")


def test_images_in_the_node_image_are_not_loaded(
    tmp_path: Path, clusters: Clusters, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "obtain_node_images", lambda *_: (NodeImages("c", "w"), True))
    state = clusters.up(request(tmp_path))
    assert machine.count("images import") == 0
    assert state.on_the_spot and state.images["emugpu"] == "emugpu:1"
    assert machine.count("systemctl restart emugpu-routes") == 3
    clusters.up(request(tmp_path))
    assert machine.count("images import") == 0


@pytest.mark.parametrize("reshape", [False, True])
def test_another_number_of_nodes_is_refused(tmp_path: Path, clusters: Clusters, *, reshape: bool) -> None:
    clusters.up(request(tmp_path))
    message = "has 2 worker nodes, not 1, and kind adds or removes none: run `emugpu cluster down --name dev` first"
    with pytest.raises(ClusterError, match=message):
        clusters.up(replace(request(tmp_path, nodes=1), reshape=reshape))


def test_another_shape_is_refused_before_anything_is_done(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    before = clusters.up(request(tmp_path))
    machine.ran.clear()
    with pytest.raises(ClusterError) as caught:
        clusters.up(request(tmp_path, gpus=4))
    message = str(caught.value)
    assert message.startswith("cluster 'dev' has another shape: pool default has 2 nodes with 8 x ")
    assert "asked for 2 nodes with 4 x " in message
    assert all(fix in message for fix in ("--reshape", "--name", "`emugpu cluster down --name dev`"))
    assert machine.ran == []
    assert clusters.state("dev") == before


def test_reshape_changes_it_in_place(tmp_path: Path, clusters: Clusters, machine: Machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    machine.ran.clear()
    state = clusters.up(replace(request(tmp_path, gpus=4), reshape=True))
    assert [pool.gpus for pool in state.spec.pools] == [4]
    assert machine.count("kind create") == machine.count("kind delete") == 0
    assert machine.count("helm upgrade --install") == 1
    assert any(line.startswith("reshaping cluster dev: pool default has 2 nodes with 8 x ") for line in steps.said)
    assert clusters.up(request(tmp_path, gpus=4)) == state  # it has this shape now


def test_reshape_is_silent_where_there_is_nothing_to_change(tmp_path: Path, clusters: Clusters, steps) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2):
        clusters.up(replace(request(tmp_path), reshape=True))
    assert not any("reshaping" in line for line in steps.said)


def test_an_existing_cluster_is_reshaped_only_when_asked(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    (tmp_path / "lab").write_text("")
    wanted = replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "lab", image="r/e:1")
    clusters.up(wanted)
    machine.ran.clear()
    fewer = replace(wanted, spec=request(tmp_path, "lab", nodes=1).spec)
    with pytest.raises(ClusterError, match=r"has another shape: pool default has 2 nodes .* asked for 1 node with 8"):
        clusters.up(fewer)
    assert machine.ran == []
    assert clusters.up(replace(fewer, reshape=True)).spec.workers == 1
    assert any(f"label nodes --overwrite n2 {POOL_LABEL}-" in line for line in machine.ran)


def test_a_wish_for_too_many_nodes_of_an_existing_cluster_is_forgotten(
    tmp_path: Path, clusters: Clusters, machine: Machine
) -> None:
    (tmp_path / "lab").write_text("")
    wanted = replace(request(tmp_path, "lab", nodes=3), kubeconfig=tmp_path / "lab", image="r/e:1")
    with pytest.raises(ClusterError, match="the pools want 3 nodes, the cluster has 2"):
        clusters.up(wanted)
    assert clusters.names() == []
    assert clusters.up(replace(wanted, spec=request(tmp_path, "lab").spec)).spec.workers == 2


def test_a_cluster_of_somebody_else_is_left_alone(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    machine.clusters.add("dev")
    with pytest.raises(ClusterError, match="isn't ours"):
        clusters.up(request(tmp_path))
    assert machine.clusters == {"dev"}


@pytest.mark.parametrize("error", [ClusterError("no disk"), KeyboardInterrupt()])
def test_a_half_made_cluster_is_removed(
    tmp_path: Path,
    clusters: Clusters,
    machine: Machine,
    steps,
    error: BaseException,  # type: ignore[no-untyped-def]
) -> None:
    machine.fail = lambda line: error if "rollout status" in line else None
    with pytest.raises(type(error)):
        clusters.up(request(tmp_path))
    assert machine.clusters == set()
    assert clusters.names() == []
    assert "removing the half-made cluster" in steps.said


def test_what_a_killed_run_left_is_made_again(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    state = clusters.up(request(tmp_path))
    clusters.directory("dev").save(replace(state, complete=False))
    with pytest.raises(ClusterError, match="was not finished"):
        clusters.state("dev")
    machine.ran.clear()
    clusters.up(request(tmp_path))
    assert [line.split()[1] for line in machine.ran if line.startswith(("kind create", "kind delete"))] == [
        "delete",
        "create",
    ]


def test_nodes_that_vanished_are_made_again_with_images(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    clusters.up(request(tmp_path))
    machine.clusters.clear()
    machine.ran.clear()
    clusters.up(request(tmp_path))
    assert machine.count("kind create") == 1
    assert machine.count("images import") == 4


def test_an_interruption_later_keeps_the_nodes(tmp_path: Path, clusters: Clusters, machine: Machine, steps) -> None:  # type: ignore[no-untyped-def]
    machine.fail = lambda line: KeyboardInterrupt() if "helm upgrade" in line else None
    with pytest.raises(KeyboardInterrupt):
        clusters.up(request(tmp_path))
    assert machine.clusters == {"dev"}
    assert any("goes on from here" in line for line in steps.said)
    machine.fail = lambda _line: None
    machine.ran.clear()
    clusters.up(request(tmp_path))
    assert machine.count("kind create") == machine.count("images import") == 0


def test_without_the_chart(tmp_path: Path, clusters: Clusters, machine: Machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(replace(request(tmp_path), with_chart=False))
    assert machine.count("helm upgrade") == 0
    assert not any("left as it is" in line for line in steps.said)


def test_a_chart_that_is_there_stays_where_none_is_wanted(
    tmp_path: Path,
    clusters: Clusters,
    machine: Machine,
    steps,  # type: ignore[no-untyped-def]
) -> None:
    clusters.up(request(tmp_path))
    machine.ran.clear()
    clusters.up(replace(request(tmp_path), with_chart=False))
    assert machine.count("helm upgrade") == machine.count("helm uninstall") == 0
    assert "the chart is left as it is: --no-chart neither changes nor removes it" in steps.said


def renamed(tmp_path: Path) -> Request:
    pools = ("other=8xV100:2",)
    return replace(request(tmp_path), spec=plan("dev", pools=pools), reshape=True)


def test_pools_with_other_names_stand_beside_the_old_ones_until_the_nodes_have_moved(
    tmp_path: Path, clusters: Clusters, machine: Machine
) -> None:
    clusters.up(request(tmp_path))
    machine.ran.clear()
    state = clusters.up(renamed(tmp_path))
    done = [line for line in machine.ran if "helm upgrade" in line or "label nodes" in line or "emugpupools" in line]
    first, seen, labelled, last = done
    inputs = clusters._shell("dev").inputs  # type: ignore[attr-defined]
    assert [pool["name"] for pool in yaml.safe_load(inputs[first])["pools"]] == ["other", "default"]
    assert "emugpupools" in seen and labelled.endswith(f"n1 n2 {POOL_LABEL}=other")
    assert [pool["name"] for pool in yaml.safe_load(inputs[last])["pools"]] == ["other"]
    assert [pool.name for pool in clusters.state("dev").spec.pools] == [pool.name for pool in state.spec.pools]


def test_a_move_that_failed_can_be_taken_again_or_back(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    before = clusters.up(request(tmp_path))
    machine.fail = lambda line: ClusterError("no") if "helm upgrade" in line else None
    with pytest.raises(ClusterError):
        clusters.up(renamed(tmp_path))
    assert machine.labels == {"n1": "default", "n2": "default"}
    assert clusters.state("dev").spec == before.spec
    machine.fail = lambda _line: None
    assert clusters.up(request(tmp_path)) == before
    clusters.up(renamed(tmp_path))
    assert machine.labels == {"n1": "other", "n2": "other"}


def test_a_move_without_a_chart_to_move_is_a_plain_install(
    tmp_path: Path, clusters: Clusters, machine: Machine
) -> None:
    clusters.up(replace(request(tmp_path), with_chart=False))
    clusters.up(renamed(tmp_path))
    assert machine.count("helm upgrade") == 1


def test_a_controller_that_sees_nothing_is_named(
    tmp_path: Path, clusters: Clusters, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.up(request(tmp_path))
    monkeypatch.setattr(cluster_module, "_POOLS_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cluster_module, "unseen", lambda _pools: "the controller hasn't seen other")
    with pytest.raises(ClusterError, match="pools: not after 0 s: the controller hasn't seen other"):
        clusters.up(renamed(tmp_path))
    assert machine.labels == {"n1": "default", "n2": "default"}


def test_down_removes_everything_and_may_be_repeated(
    tmp_path: Path,
    clusters: Clusters,
    machine: Machine,
    steps,  # type: ignore[no-untyped-def]
) -> None:
    clusters.up(request(tmp_path))
    clusters.down("dev")
    assert machine.clusters == set()
    assert clusters.names() == []
    clusters.down("dev")
    assert "there is no cluster dev" in steps.said
    with pytest.raises(ClusterError, match="there is no cluster 'dev'"):
        clusters.state("dev")


@dataclass
class OwnEngine:
    stopped: int = 0

    def stop(self) -> list[str]:
        self.stopped += 1
        return ["dockerd has ended"]


def test_our_engine_ends_with_the_last_cluster(
    tmp_path: Path,
    clusters: Clusters,
    make_shell,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    own = OwnEngine()
    shell = make_shell({"docker ps": lambda _words: machine.foreign, "": machine.answer})
    monkeypatch.setattr(cluster_module, "running_engine", lambda *_: Engine(shell, "28.0", own))  # type: ignore[arg-type]
    clusters.up(request(tmp_path))
    clusters.up(request(tmp_path, "other"))
    clusters.down("dev")
    assert own.stopped == 0
    machine.foreign = "c0ffee\n"  # a container that somebody else runs in it
    clusters.down("other")
    assert own.stopped == 0
    machine.foreign = ""
    clusters.down("other")
    assert own.stopped == 1


def test_an_existing_cluster_keeps_everything_but_the_chart(
    tmp_path: Path, clusters: Clusters, machine: Machine
) -> None:
    kubeconfig = tmp_path / "lab"
    kubeconfig.write_text("")
    wanted = replace(request(tmp_path, "lab"), kubeconfig=kubeconfig, context="west", image="registry.lab/emugpu:1")
    state = clusters.up(wanted)
    assert state.images == {"emugpu": "registry.lab/emugpu:1", "emugpu-redis": "redis:7"}
    assert clusters.up(replace(wanted, image="")).images == state.images  # it is remembered
    assert machine.count("kind") == 0
    assert all("--context west" in line for line in machine.ran if line.startswith("kubectl"))
    with pytest.raises(ClusterError, match="pull images themselves"):
        clusters.load("lab", "x:1")
    clusters.down("lab")
    assert machine.count("helm uninstall") == 1
    assert any(f"label nodes n1 n2 {POOL_LABEL}-" in line for line in machine.ran)
    assert kubeconfig.exists()
    assert clusters.names() == []
    assert machine.namespace == ""


def test_a_namespace_that_was_there_stays(
    tmp_path: Path,
    clusters: Clusters,
    machine: Machine,
    steps,  # type: ignore[no-untyped-def]
) -> None:
    machine.namespace = "somebodys"
    (tmp_path / "lab").write_text("")
    wanted = replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "lab", image="r/e:1")
    assert clusters.up(wanted).namespace_uid == ""
    clusters.down("lab")
    assert machine.namespace == "somebodys"
    assert "namespace emugpu-system was there before and stays" in steps.said


def test_a_namespace_that_up_made_is_ours_after_any_up(tmp_path: Path, clusters: Clusters, machine: Machine) -> None:
    (tmp_path / "lab").write_text("")
    wanted = replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "lab", image="r/e:1")
    machine.fail = lambda line: ClusterError("no") if "helm upgrade" in line else None
    with pytest.raises(ClusterError):
        clusters.up(wanted)
    machine.fail = lambda _line: None
    made = machine.namespace
    assert clusters.up(wanted).namespace_uid == made != ""
    clusters.down("lab")
    assert machine.namespace == ""


@pytest.mark.parametrize("image", ["emugpu", "localhost:5000/emugpu"])
def test_an_image_without_a_tag_is_refused_before_there_are_nodes(
    tmp_path: Path, clusters: Clusters, machine: Machine, image: str
) -> None:
    with pytest.raises(InputError, match=f"--image: must be NAME:TAG of the local engine, or .* not '{image}'"):
        clusters.up(replace(request(tmp_path), image=image))
    assert machine.ran == [] == clusters.names()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("", "--image: is missing: .* and give its NAME:TAG"),
        ("r:5000/e", "--image: must be NAME:TAG .* not 'r:5000/e'"),
    ],
)
def test_an_existing_cluster_must_be_told_its_image(
    tmp_path: Path, clusters: Clusters, machine: Machine, image: str, message: str
) -> None:
    (tmp_path / "lab").write_text("")
    wanted = replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "lab", image=image)
    with pytest.raises(InputError, match=message):
        clusters.up(wanted)
    assert machine.count("helm") == machine.count("label") == machine.count("create") == 0
    assert clusters.names() == []
    clusters.up(replace(wanted, image="", with_chart=False))
    assert clusters.names() == ["lab"]


def test_a_name_means_one_cluster(tmp_path: Path, clusters: Clusters) -> None:
    clusters.up(request(tmp_path))
    (tmp_path / "lab").write_text("")
    with pytest.raises(ClusterError, match="choose another --name"):
        clusters.up(replace(request(tmp_path), kubeconfig=tmp_path / "lab"))


def test_a_kubeconfig_that_is_not_there(tmp_path: Path, clusters: Clusters) -> None:
    with pytest.raises(ClusterError, match="no such kubeconfig"):
        clusters.up(replace(request(tmp_path), kubeconfig=tmp_path / "gone"))


def test_a_damaged_state_says_what_to_do(clusters: Clusters) -> None:
    directory = clusters.directory("dev")
    directory.path.mkdir(parents=True)
    (directory.path / "cluster.json").write_text("{")
    with pytest.raises(ClusterError, match=r"cluster\.json: is damaged"):
        clusters.state("dev")
