"""Clusters on a fake machine: the state after each command, repeated commands, and clean-up after failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cluster_harness import cluster as cluster_module
from cluster_harness import site as site_module
from cluster_harness import up as up_module
from cluster_harness.cache import Cache
from cluster_harness.cluster import Clusters
from cluster_harness.engine import Engine
from cluster_harness.images import CHECKOUT, Image, ImageBuilder
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.product.chart import NAMESPACE, POOL_LABEL
from cluster_harness.programs import CLIENTS, Clients
from cluster_harness.request.flags import plan
from cluster_harness.requirements.host import CAPABILITY_BITS, PROGRAMS, Host, Volume
from cluster_harness.requirements.work import OFFLINE, REGISTRY, Work
from cluster_harness.up import Request
from cluster_harness.versions import go_toolchain
from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.domain.units import GIB

RELEASE = "emugpu"


def host(files: Iterable[Path]) -> Host:
    """A machine that has everything."""
    return Host(
        programs=frozenset(PROGRAMS),
        is_root=True,
        capabilities=frozenset(CAPABILITY_BITS),
        memory_bytes=64 * GIB,
        volumes={use: Volume(Path("/"), 1, 900 * GIB) for use in ("cache", "go", "engine")},
        inotify={"max_user_instances": 8192, "max_user_watches": 1 << 20},
        inotify_writable=True,
        buildx=True,
        pip=True,
        go_version=go_toolchain(),
        files=frozenset(files),
    )


@dataclass
class Checkout:
    """Its images have the content `version`. `changes`: in what the machine differs from one that has everything."""

    archive: Path
    version: int = 1
    changes: dict[str, object] = field(default_factory=dict)

    def probe(self, _cache: object, _shell: object, files: Iterable[Path]) -> Host:
        return replace(host(files), **self.changes)  # type: ignore[arg-type]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    (tmp_path / "archive").write_text("archive")
    (tmp_path / "charts/emugpu").mkdir(parents=True)
    (tmp_path / "charts/emugpu/Chart.yaml").write_text("")
    found = Checkout(tmp_path / "archive")

    def build(_builder: ImageBuilder) -> dict[str, Image]:
        return {name: Image(f"{name}:{found.version}", found.archive) for name in ("emugpu", "emugpu-redis")}

    monkeypatch.setattr(ImageBuilder, "build", build)
    monkeypatch.setattr(ImageBuilder, "missing", lambda *_: [])
    return found


@pytest.fixture
def clusters(tmp_path: Path, checkout: Checkout, shell, steps, monkeypatch: pytest.MonkeyPatch) -> Clusters:  # type: ignore[no-untyped-def]
    programs = Clients(**{name: Path(name) for name in CLIENTS})
    for module in (cluster_module, site_module, up_module):
        monkeypatch.setattr(module, "clients", lambda *_, **__: programs)
        monkeypatch.setattr(module, "missing_clients", lambda *_, **__: (), raising=False)
    monkeypatch.setattr(up_module, "node_images", lambda *_: NodeImages("node:1", "node:1-worker"))
    monkeypatch.setattr(site_module, "has_node_images", lambda _engine: True)
    monkeypatch.setattr(site_module, "has_rootfs", lambda _cache: True)
    monkeypatch.setattr(up_module.Site, "shell", lambda *_: shell)
    monkeypatch.setattr(up_module.Site, "engine_shell", lambda _site: shell)
    return Clusters(Cache(tmp_path / "cache"), steps, {}, checkout.probe)


def request(tmp_path: Path, name: str = "dev", nodes: int = 2, gpus: int = 8) -> Request:
    return Request(plan(name, nodes=nodes, gpus=gpus, gpu_type="V100"), chart=tmp_path / "charts/emugpu")


def pools(machine) -> list[str | None]:  # type: ignore[no-untyped-def]
    """Each worker's."""
    return [node.labels.get(POOL_LABEL) for name, node in machine.nodes.items() if name != "n0"]


def test_up_creates_nodes_with_images_and_installs_the_chart(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    state = clusters.up(request(tmp_path))
    assert set(machine.clusters) == {"dev"} and len(machine.nodes) == 3
    assert all(node.images == ["archive", "archive"] for node in machine.nodes.values())
    assert pools(machine) == ["default", "default"]
    release = machine.releases[RELEASE]
    assert release.waited and [pool["name"] for pool in release.values["pools"]] == ["default"]
    assert release.values["image"]["tag"] == "1"
    assert state.complete and state.images["emugpu"] == "emugpu:1"
    assert clusters.state("dev") == state and clusters.names() == ["dev"]


def test_up_again_repeats_nothing_that_is_done(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    machine.operations.clear()
    clusters.up(request(tmp_path))
    assert machine.operations["kind create"] == machine.operations["image import"] == 0
    assert machine.operations["helm upgrade"] == 1


def nothing_began(clusters: Clusters, machine) -> bool:  # type: ignore[no-untyped-def]
    changed = {"docker pull", "docker build", "kind create", "helm upgrade", "kubectl label", "kubectl create"}
    return not changed & set(machine.operations) and machine.clusters == {} and clusters.names() == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"memory_bytes": 0}, ["memory"]),
        ({"programs": frozenset(PROGRAMS) - {"dockerd"}}, ["dockerd"]),
        ({"programs": frozenset(), "is_root": False, "memory_bytes": 0}, ["docker", "dockerd", "root", "memory"]),
    ],
)
@pytest.mark.parametrize("registry", [True, False])
def test_up_begins_nothing_where_something_is_missing(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, checkout: Checkout, machine, steps, changes, names: list[str], *, registry: bool
) -> None:
    machine.engine_runs, machine.registry = False, registry
    checkout.changes = changes
    with pytest.raises(ClusterError, match=r"missing for a kind cluster .*; nothing was started:") as caught:
        clusters.up(request(tmp_path))
    assert all(f"\n  {name}: " in str(caught.value) for name in names)
    assert steps.titles == [] and nothing_began(clusters, machine)


def test_an_existing_cluster_needs_its_kubeconfig_and_the_chart(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, checkout: Checkout, machine, steps
) -> None:
    checkout.changes = {"files": frozenset(), "programs": frozenset(), "is_root": False}
    with pytest.raises(ClusterError, match=r"2 things are missing for an existing cluster") as caught:
        clusters.up(replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "gone", image="r/e:1"))
    assert all(f"\n  {name}: " in str(caught.value) for name in ("chart", "kubeconfig"))
    with pytest.raises(
        InputError, match="--image: is missing"
    ):  # a mistake of the command comes before what the machine lacks
        clusters.up(replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "gone"))
    assert steps.titles == [] and nothing_began(clusters, machine)


def test_a_registry_decides_what_is_checked_and_what_nodes_are_made_of(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine, steps
) -> None:
    machine.registry = False
    state = clusters.up(request(tmp_path))
    assert "no container registry gives kind's node image: the node image is built here" in steps.said
    assert state.on_the_spot and state.images["emugpu"] == "emugpu:1"
    images = {node["role"]: node["image"] for node in machine.clusters["dev"]["nodes"]}
    assert all(image.startswith("emugpu-node-loaded:1") for image in images.values())
    assert machine.operations["image import"] == 0, "the images are part of the node image"
    assert all("route replace" in node.routes for node in machine.nodes.values())
    clusters.up(request(tmp_path))
    assert machine.operations["image import"] == 0


def test_requirements_are_checked_again_where_nodes_have_disappeared(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, checkout: Checkout, machine
) -> None:
    clusters.up(request(tmp_path))
    machine.clusters.clear()
    machine.nodes.clear()
    machine.releases.clear()
    machine.operations.clear()
    checkout.changes = {"memory_bytes": GIB}
    with pytest.raises(ClusterError, match="one thing is missing"):
        clusters.up(request(tmp_path))
    assert machine.operations["kind create"] == 0
    checkout.changes = {}
    clusters.up(request(tmp_path))
    assert set(machine.clusters) == {"dev"}
    assert all(len(node.images) == 2 for node in machine.nodes.values())


def test_a_cluster_that_does_not_answer(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    machine.failures["kubectl get nodes"] = ClusterError("TLS handshake timeout")
    with pytest.raises(ClusterError, match="exists and doesn't answer; was its engine restarted"):
        clusters.up(request(tmp_path))
    assert set(machine.clusters) == {"dev"}


def test_a_changed_product_is_loaded_again(tmp_path: Path, clusters: Clusters, checkout: Checkout, machine) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    checkout.version = 2
    assert clusters.up(request(tmp_path)).images["emugpu"] == "emugpu:2"
    assert all(len(node.images) == 4 for node in machine.nodes.values())
    assert machine.releases[RELEASE].values["image"]["tag"] == "2"


def test_an_image_that_the_installed_chart_would_not_find_is_refused(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, checkout: Checkout, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageBuilder, "key", lambda _builder, name: f"{name == 'emugpu' and checkout.version}")
    monkeypatch.setattr(ImageBuilder, "build_optional", lambda _builder, name: Image(f"{name}:own", checkout.archive))
    clusters.up(request(tmp_path))
    clusters.load("dev", "emugpu-scheduler")
    assert all(len(node.images) == 3 for node in machine.nodes.values())
    checkout.version = 2
    message = "cluster 'dev' runs emugpu:1 and this checkout makes emugpu:2, .*`emugpu cluster up --name dev`"
    with pytest.raises(ClusterError, match=message):
        clusters.load("dev", "emugpu-scheduler")
    clusters.up(request(tmp_path))
    clusters.load("dev", "emugpu-scheduler")
    assert all(len(node.images) == 6 for node in machine.nodes.values())


def test_an_image_of_the_engine_is_loaded(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.up(request(tmp_path))
    machine.images["mine:1"] = "sha256:1"
    clusters.load("dev", "mine:1")
    assert all(node.images[-1] == "mine:1" for node in machine.nodes.values())


@pytest.mark.parametrize("reshape", [False, True])
def test_another_number_of_nodes_is_refused(tmp_path: Path, clusters: Clusters, *, reshape: bool) -> None:
    clusters.up(request(tmp_path))
    message = "has 2 worker nodes, not 1, and kind adds or removes none: run `emugpu cluster down --name dev` first"
    with pytest.raises(ClusterError, match=message):
        clusters.up(replace(request(tmp_path, nodes=1), reshape=reshape))


def test_another_shape_is_refused_before_anything_is_done(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    before = clusters.up(request(tmp_path))
    machine.operations.clear()
    with pytest.raises(ClusterError) as caught:
        clusters.up(request(tmp_path, gpus=4))
    message = str(caught.value)
    assert message.startswith("cluster 'dev' has another shape: pool default has 2 nodes with 8 x ")
    assert "asked for 2 nodes with 4 x " in message
    assert all(fix in message for fix in ("--reshape", "--name", "`emugpu cluster down --name dev`"))
    assert machine.operations.total() == 0
    assert clusters.state("dev") == before


def test_reshape_changes_it_in_place(tmp_path: Path, clusters: Clusters, machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    state = clusters.up(replace(request(tmp_path, gpus=4), reshape=True))
    assert [pool.gpus for pool in state.spec.pools] == [4]
    assert machine.operations["kind create"] == 1 and machine.operations["kind delete"] == 0
    assert machine.releases[RELEASE].values["pools"][0]["gpus"][0]["count"] == 4
    assert any(line.startswith("reshaping cluster dev: pool default has 2 nodes with 8 x ") for line in steps.said)
    assert clusters.up(request(tmp_path, gpus=4)) == state, "it has this shape now"


def test_reshape_is_silent_where_there_is_nothing_to_change(tmp_path: Path, clusters: Clusters, steps) -> None:  # type: ignore[no-untyped-def]
    for _ in range(2):
        clusters.up(replace(request(tmp_path), reshape=True))
    assert not any("reshaping" in line for line in steps.said)


@pytest.fixture
def lab(tmp_path: Path, machine, make_node) -> Request:  # type: ignore[no-untyped-def]
    """A request for an existing cluster with a control plane and two workers."""
    (tmp_path / "lab").write_text("")
    machine.add_nodes(make_node("n0", {"node-role.kubernetes.io/control-plane": ""}), make_node("n1"), make_node("n2"))
    return replace(request(tmp_path, "lab"), kubeconfig=tmp_path / "lab", image="registry.lab/emugpu:1")


def test_an_existing_cluster_is_reshaped_only_when_asked(
    tmp_path: Path,
    clusters: Clusters,
    machine,
    lab: Request,  # type: ignore[no-untyped-def]
) -> None:
    clusters.up(lab)
    machine.operations.clear()
    fewer = replace(lab, spec=request(tmp_path, "lab", nodes=1).spec)
    with pytest.raises(ClusterError, match=r"has another shape: pool default has 2 nodes .* asked for 1 node with 8"):
        clusters.up(fewer)
    assert machine.operations.total() == 0
    assert clusters.up(replace(fewer, reshape=True)).spec.workers == 1
    assert pools(machine) == ["default", None]


def test_a_request_for_too_many_nodes_of_an_existing_cluster_is_forgotten(
    tmp_path: Path, clusters: Clusters, lab: Request
) -> None:
    with pytest.raises(ClusterError, match="the pools want 3 nodes, the cluster has 2"):
        clusters.up(replace(lab, spec=request(tmp_path, "lab", nodes=3).spec))
    assert clusters.names() == []
    assert clusters.up(lab).spec.workers == 2


def test_a_cluster_of_somebody_else_stays(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    machine.clusters["dev"] = {"nodes": []}
    with pytest.raises(ClusterError, match="that emugpu didn't create"):
        clusters.up(request(tmp_path))
    assert set(machine.clusters) == {"dev"}


@pytest.mark.parametrize("error", [ClusterError("no disk"), KeyboardInterrupt()])
def test_a_half_created_cluster_is_deleted(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine, steps, error: BaseException
) -> None:
    machine.failures["kubectl rollout"] = error
    with pytest.raises(type(error)):
        clusters.up(request(tmp_path))
    assert machine.clusters == {} and clusters.names() == []
    assert "deleting the half-created cluster" in steps.said


def test_what_a_killed_run_left_is_created_again(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    state = clusters.up(request(tmp_path))
    clusters.directory("dev").save(replace(state, complete=False))
    with pytest.raises(ClusterError, match="was not finished"):
        clusters.state("dev")
    clusters.up(request(tmp_path))
    assert (machine.operations["kind delete"], machine.operations["kind create"]) == (1, 2)
    assert clusters.state("dev").complete


def test_an_interruption_later_keeps_the_nodes(tmp_path: Path, clusters: Clusters, machine, steps) -> None:  # type: ignore[no-untyped-def]
    machine.failures["helm upgrade"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        clusters.up(request(tmp_path))
    assert set(machine.clusters) == {"dev"}
    assert any("the same command continues from here" in line for line in steps.said)
    machine.failures.clear()
    machine.operations.clear()
    clusters.up(request(tmp_path))
    assert machine.operations["kind create"] == machine.operations["image import"] == 0
    assert RELEASE in machine.releases


def test_without_the_chart(tmp_path: Path, clusters: Clusters, machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(replace(request(tmp_path), with_chart=False))
    assert machine.releases == {} and pools(machine) == ["default", "default"]
    assert not any("stays as it is" in line for line in steps.said)


def test_an_installed_chart_stays_where_none_is_wanted(tmp_path: Path, clusters: Clusters, machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    before = machine.releases[RELEASE]
    clusters.up(replace(request(tmp_path), with_chart=False))
    assert machine.releases[RELEASE] is before
    assert "the installed chart stays as it is: --no-chart neither changes nor removes it" in steps.said


def renamed(tmp_path: Path) -> Request:
    return replace(request(tmp_path), spec=plan("dev", pools=("other=8xV100:2",)), reshape=True)


def test_pools_with_other_names_stand_beside_the_old_ones_until_the_nodes_have_moved(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine
) -> None:
    clusters.up(request(tmp_path))
    state = clusters.up(renamed(tmp_path))
    assert machine.releases[RELEASE].versions == [["default"], ["other", "default"], ["other"]]
    assert pools(machine) == ["other", "other"]
    assert clusters.state("dev").spec == state.spec == renamed(tmp_path).spec


def test_a_move_that_failed_can_be_repeated_or_undone(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    before = clusters.up(request(tmp_path))
    machine.failures["helm upgrade"] = ClusterError("no")
    with pytest.raises(ClusterError):
        clusters.up(renamed(tmp_path))
    assert pools(machine) == ["default", "default"]
    assert clusters.state("dev").spec == before.spec
    machine.failures.clear()
    assert clusters.up(request(tmp_path)) == before
    clusters.up(renamed(tmp_path))
    assert pools(machine) == ["other", "other"]


def test_a_move_without_an_installed_chart_is_a_plain_install(tmp_path: Path, clusters: Clusters, machine) -> None:  # type: ignore[no-untyped-def]
    clusters.up(replace(request(tmp_path), with_chart=False))
    clusters.up(renamed(tmp_path))
    assert machine.releases[RELEASE].versions == [["other"]]


def test_a_controller_that_does_not_react_is_named(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.up(request(tmp_path))
    monkeypatch.setattr(up_module, "_POOLS_TIMEOUT_S", 0.0)
    monkeypatch.setattr(up_module, "unobserved", lambda _pools: "the controller hasn't seen other")
    with pytest.raises(ClusterError, match="pools: not after 0 s: the controller hasn't seen other"):
        clusters.up(renamed(tmp_path))
    assert pools(machine) == ["default", "default"]


def test_down_removes_everything_and_may_be_repeated(tmp_path: Path, clusters: Clusters, machine, steps) -> None:  # type: ignore[no-untyped-def]
    clusters.up(request(tmp_path))
    clusters.down("dev")
    assert machine.clusters == {} and clusters.names() == []
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


def test_our_engine_ends_with_the_last_cluster(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, shell, machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = OwnEngine()
    monkeypatch.setattr(cluster_module, "running_engine", lambda *_: Engine(shell, "28.0", own))  # type: ignore[arg-type]
    clusters.up(request(tmp_path))
    clusters.up(request(tmp_path, "other"))
    clusters.down("dev")
    assert own.stopped == 0
    machine.containers = {"somebody's"}
    clusters.down("other")
    assert own.stopped == 0
    machine.containers.clear()
    clusters.down("other")
    assert own.stopped == 1


def test_an_existing_cluster_keeps_everything_but_the_chart(clusters: Clusters, machine, lab: Request) -> None:  # type: ignore[no-untyped-def]
    wanted = replace(lab, context="west")
    state = clusters.up(wanted)
    assert state.images == {"emugpu": "registry.lab/emugpu:1", "emugpu-redis": "redis:7"}
    assert clusters.up(replace(wanted, image="")).images == state.images, "it is remembered"
    assert machine.clusters == {} and machine.contexts == {"west"}
    with pytest.raises(ClusterError, match="pull images themselves"):
        clusters.load("lab", "x:1")
    clusters.down("lab")
    assert machine.releases == machine.namespaces == {}
    assert pools(machine) == [None, None]
    assert wanted.kubeconfig is not None and wanted.kubeconfig.exists()
    assert clusters.names() == []


def test_a_namespace_that_existed_stays(clusters: Clusters, machine, steps, lab: Request) -> None:  # type: ignore[no-untyped-def]
    machine.namespaces[NAMESPACE] = {"uid": "somebody's", "labels": {}}
    assert clusters.up(lab).namespace_uid == ""
    clusters.down("lab")
    assert machine.namespaces[NAMESPACE]["uid"] == "somebody's"
    assert "namespace emugpu-system existed before and stays" in steps.said


def test_a_namespace_that_up_created_is_ours_after_any_up(clusters: Clusters, machine, lab: Request) -> None:  # type: ignore[no-untyped-def]
    machine.failures["helm upgrade"] = ClusterError("no")
    with pytest.raises(ClusterError):
        clusters.up(lab)
    machine.failures.clear()
    created = machine.namespaces[NAMESPACE]["uid"]
    assert clusters.up(lab).namespace_uid == created != ""
    clusters.down("lab")
    assert machine.namespaces == {}


@pytest.mark.parametrize("image", ["emugpu", "localhost:5000/emugpu"])
def test_an_image_without_a_tag_is_refused_before_there_are_nodes(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, machine, image: str
) -> None:
    with pytest.raises(InputError, match=f"--image: must be NAME:TAG of the local engine, or .* not '{image}'"):
        clusters.up(replace(request(tmp_path), image=image))
    assert nothing_began(clusters, machine)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("", "--image: is missing: .* and give its NAME:TAG"),
        ("r:5000/e", "--image: must be NAME:TAG .* not 'r:5000/e'"),
    ],
)
def test_an_existing_cluster_needs_the_name_of_an_image(  # type: ignore[no-untyped-def]
    clusters: Clusters, machine, lab: Request, image: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        clusters.up(replace(lab, image=image))
    assert nothing_began(clusters, machine)
    clusters.up(replace(lab, image="", with_chart=False))
    assert clusters.names() == ["lab"]


def test_a_name_means_one_cluster(tmp_path: Path, clusters: Clusters, lab: Request) -> None:
    clusters.up(request(tmp_path))
    with pytest.raises(ClusterError, match="choose another --name"):
        clusters.up(replace(request(tmp_path), kubeconfig=lab.kubeconfig))


def test_a_damaged_state_says_what_to_do(clusters: Clusters) -> None:
    directory = clusters.directory("dev")
    directory.path.mkdir(parents=True)
    (directory.path / "cluster.json").write_text("{")
    with pytest.raises(ClusterError, match=r"cluster\.json: is damaged"):
        clusters.state("dev")


def test_work_without_a_cache_is_everything(  # type: ignore[no-untyped-def]
    tmp_path: Path, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageBuilder, "missing", lambda *_: ["emugpu"])
    monkeypatch.setattr(site_module, "has_node_images", lambda _engine: False)
    monkeypatch.setattr(site_module, "has_rootfs", lambda _cache: False)
    monkeypatch.setattr(site_module, "has_components", lambda _cache: False)
    monkeypatch.setattr(site_module, "missing_clients", lambda *_: ("kind",))
    chart = tmp_path / "charts/emugpu"
    with_registry = clusters.work_on_kind(REGISTRY, None, 3, chart)
    assert with_registry == Work(
        REGISTRY, creates_nodes=3, clients=("kind",), builds_images=True, checkout=CHECKOUT, chart=chart
    )
    assert clusters.work_on_kind(OFFLINE, None, 3, chart) == Work(
        OFFLINE,
        creates_nodes=3,
        builds_components=True,
        builds_root_file_system=True,
        builds_node_image=True,
        builds_images=True,
        checkout=CHECKOUT,
        chart=chart,
    )
