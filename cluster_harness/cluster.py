"""A cluster's life: up, status, load, down. Every step may be repeated; what is done already is found and left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cluster_harness.cache import Cache
from cluster_harness.engine import Engine, ensure_engine, running_engine
from cluster_harness.images import CHECKOUT, OPTIONAL, Image, ImageBuilder
from cluster_harness.kind import Kind
from cluster_harness.kubectl import Kubectl
from cluster_harness.offline.image_commit import NodeImages, with_product
from cluster_harness.product import chart as product
from cluster_harness.product.readiness import missing_gpus
from cluster_harness.product.reshape import behind, leaving, renames, side_by_side, unseen
from cluster_harness.programs import Clients, clients
from cluster_harness.providers import ExistingWay, KindWay, Way, existing_way, obtain_node_images, saved_image
from cluster_harness.request.spec import ClusterSpec, differences
from cluster_harness.shell import Shell
from cluster_harness.state import EXISTING, KIND, ClusterDirectory, ClusterState, cluster_names
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError, InputError

PUBLIC_REDIS = "redis:7"
"""What an existing cluster pulls for the chart's Redis, unless --set redis.image.* says otherwise."""
_GPUS_TIMEOUT_S = 180.0
_POOLS_TIMEOUT_S = 120.0
_NO_IMAGES = NodeImages("", "")  # a cluster that exists needs none


@dataclass(frozen=True)
class Request:
    """What `up` is asked for. `kubeconfig` given: a cluster that exists, which needs an `image` that its nodes can pull.
    `image` otherwise: instead of one built from the checkout. `reshape`: a cluster that is there may get other pools."""

    spec: ClusterSpec
    kubeconfig: Path | None = None
    context: str = ""
    image: str = ""
    chart: Path = CHECKOUT / "charts" / "emugpu"
    helm_arguments: tuple[str, ...] = ()
    with_chart: bool = True
    wait: bool = True
    reshape: bool = False


@dataclass(frozen=True)
class Clusters:
    """All clusters of one cache directory; the commands of `emugpu cluster` are its methods."""

    cache: Cache
    steps: Steps
    environ: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        return cluster_names(self.cache.root)

    def directory(self, name: str) -> ClusterDirectory:
        return ClusterDirectory(self.cache.root, name)

    def state(self, name: str) -> ClusterState:
        """Raises ClusterError where there is no such cluster, or it was never finished."""
        state = self.directory(name).load()
        if state is None:
            others = f"; there are: {', '.join(self.names())}" if self.names() else ""
            raise ClusterError(f"there is no cluster {name!r}{others} (emugpu cluster up --name {name} makes it)")
        if not state.complete:
            raise ClusterError(
                f"cluster {name!r} was not finished; run `emugpu cluster up --name {name}` again, or `down`"
            )
        return state

    def up(self, request: Request) -> ClusterState:
        """Brings it up, or to what is asked for now. Raises ClusterError or InputError; a half-made cluster is removed."""
        name = request.spec.name
        _must_name_an_image(request)
        with self.cache.lock(f"clusters/{name}"):
            before = self.directory(name).load()
            state = self._wanted(request, before)
            way: Way
            baked = False
            if state.way == KIND:
                way, state, baked = self._ensure_kind(request, state)
            else:
                way = self._existing(state)
                way.is_there()
                state = self._with_images_of_registries(request, state)
                product.assign_pools(state.spec, way.kubectl.nodes())  # too few nodes: nothing of this wish is noted
            there = before.spec if before is not None and state.complete else state.spec
            state = replace(state, complete=True)
            self.directory(name).save(replace(state, spec=there))
            with self._resumable(name):
                return self._install(request, way, state, there, baked=baked)

    def _wanted(self, request: Request, before: ClusterState | None) -> ClusterState:
        directory, spec = self.directory(request.spec.name), request.spec
        kubeconfig = str(request.kubeconfig.absolute() if request.kubeconfig else directory.kubeconfig)
        way = EXISTING if request.kubeconfig else KIND
        if before is not None and before.complete:
            if (before.way, before.kubeconfig, before.context) != (way, kubeconfig, request.context):
                raise ClusterError(
                    f"cluster {spec.name!r} is {before.kubeconfig}; take it down first, or choose another --name"
                )
            self._must_fit(request, before)
            return replace(before, spec=spec)
        return ClusterState(spec, way, kubeconfig=kubeconfig, context=request.context)

    def _must_fit(self, request: Request, before: ClusterState) -> None:
        """A cluster that is there gets another shape only where somebody asked for that."""
        spec, name = request.spec, request.spec.name
        down = f"`emugpu cluster down --name {name}`"
        if before.way == KIND and before.spec.workers != spec.workers:
            raise ClusterError(
                f"cluster {name!r} has {before.spec.workers} worker nodes, not {spec.workers}, and kind adds or removes "
                f"none: run {down} first, or choose another --name"
            )
        another = "; ".join(differences(before.spec, spec))
        if another and not request.reshape:
            raise ClusterError(
                f"cluster {name!r} has another shape: {another}. Give --reshape to change it in place (pods lose devices "
                f"that go), choose another --name, or run {down} first"
            )
        if another:
            self.steps.say(f"reshaping cluster {name}: {another}")

    def _with_images_of_registries(self, request: Request, state: ClusterState) -> ClusterState:
        """What the nodes of an existing cluster pull. Raises InputError where nobody said what."""
        if request.image:
            return replace(state, images={"emugpu": request.image, "emugpu-redis": PUBLIC_REDIS})
        if request.with_chart and not state.images:
            fix = "build images/emugpu/Dockerfile, push it to a registry that its nodes reach and give its NAME:TAG"
            raise InputError("--image", f"is missing: the nodes of an existing cluster pull images themselves; {fix}")
        return state

    def _ensure_kind(self, request: Request, state: ClusterState) -> tuple[KindWay, ClusterState, bool]:
        """The running cluster as it is, or a new one; True: the images are on its nodes already."""
        shell = self._shell(state.spec.name)
        engine = ensure_engine(self.cache, shell, self.steps)
        way = self._kind(state, engine, clients(self.cache, shell, self.steps))
        if state.complete and way.is_there():
            self._must_answer(way)
            self.steps.say(f"cluster {state.spec.name} is there")
            return way, state, False
        if way.is_there():
            self._clear(way)
        return self._create_kind(request, way, replace(state, complete=False, images={}))

    def _must_answer(self, way: KindWay) -> None:
        """Nodes whose engine was restarted have other addresses, which a control plane doesn't survive."""
        try:
            way.kubectl("get", "nodes", timeout_s=30)
        except ClusterError as error:
            name = way.kind.name
            fix = f"was its engine restarted? `emugpu cluster down --name {name}`, then up"
            raise ClusterError(f"cluster {name!r} is there and doesn't answer; {fix} ({error})") from error

    def _clear(self, way: KindWay) -> None:
        """Removes what a run left that didn't finish; a cluster that isn't ours stays."""
        if way.directory.load() is None:
            name = way.kind.name
            raise ClusterError(f"kind has a cluster {name!r} that isn't ours; choose another --name, or delete it")
        self.steps.say(f"cluster {way.kind.name} was not finished: starting again")
        way.delete()

    def _create_kind(self, request: Request, way: KindWay, state: ClusterState) -> tuple[KindWay, ClusterState, bool]:
        engine = way.kind.engine
        node_images, on_the_spot = obtain_node_images(self.cache, engine, engine.shell, self.steps)
        state = replace(state, on_the_spot=on_the_spot)
        if on_the_spot:
            built = self._built(request, engine.shell, state)
            node_images = with_product(node_images, [image.archive for image in built.values()], engine, self.steps)
            state = replace(state, images={name: image.reference for name, image in built.items()})
        way = replace(way, kind=replace(way.kind, images=node_images, on_the_spot=on_the_spot))
        way.directory.save(state)
        try:
            way.create(state.spec, self.steps)
        except BaseException:
            self.steps.say("removing the half-made cluster")
            way.delete()
            way.directory.forget()
            raise
        return way, state, bool(state.images)

    @contextmanager
    def _resumable(self, name: str) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.steps.say(
                f"the nodes stay up: the same command goes on from here, `emugpu cluster down --name {name}` ends it"
            )
            raise

    def _install(
        self, request: Request, way: Way, state: ClusterState, there: ClusterSpec, *, baked: bool
    ) -> ClusterState:
        """`there`: the shape that the nodes have; noted until they have another, so that the way can be taken again."""
        if state.way == KIND and not baked:
            state = replace(state, images=self._images(request, way, state))
        self.directory(state.spec.name).save(replace(state, spec=there))
        chart = self._chart(way, request.chart, state)
        if not request.with_chart:
            return self._without_chart(chart, way, state)
        moves = renames(there, state.spec) and chart.is_installed()
        if moves:
            self._move(request, way, chart, state, there)
        else:
            self._label(way, state)
        with self.steps.step("install the chart"):
            state = replace(state, namespace_uid=chart.make_namespace() or state.namespace_uid)
            self.directory(state.spec.name).save(state)
            chart.install(product.values(state.spec, state.images), request.helm_arguments, wait=request.wait)
        if request.wait:
            with self.steps.step("wait for the GPUs"):
                nodes = way.kubectl.nodes
                way.kubectl.wait("GPUs", lambda: missing_gpus(state.spec, nodes()), _GPUS_TIMEOUT_S)
        return state

    def _label(self, way: Way, state: ClusterState) -> None:
        with self.steps.step("label the nodes with their pools"):
            product.label_nodes(way.kubectl, state.spec)
        self.directory(state.spec.name).save(state)

    def _without_chart(self, chart: product.Chart, way: Way, state: ClusterState) -> ClusterState:
        self._label(way, state)
        if chart.is_installed():
            self.steps.say("the chart is left as it is: --no-chart neither changes nor removes it")
        return state

    def _move(self, request: Request, way: Way, chart: product.Chart, state: ClusterState, there: ClusterSpec) -> None:
        """Nodes from pools to others with new names; the module `reshape` says why it takes two installs."""
        kubectl, goers = way.kubectl, leaving(there, state.spec)
        with self.steps.step("install the new pools beside the old ones"):
            both = product.values(side_by_side(there, state.spec), state.images)
            chart.install(both, request.helm_arguments, wait=False)
            pools = ("emugpupools.emugpu.dev",)
            kubectl.wait("pools", lambda: unseen(kubectl.get(*pools)["items"]), _POOLS_TIMEOUT_S)
        self._label(way, state)
        with self.steps.step("wait for the nodes to change pools"):
            kubectl.wait("nodes", lambda: behind(kubectl.nodes(), goers), _POOLS_TIMEOUT_S)

    def _images(self, request: Request, way: Way, state: ClusterState) -> dict[str, str]:
        built = self._built(request, way.kubectl.shell, state)
        new = [image for name, image in built.items() if state.images.get(name) != image.reference]
        if new:
            with self.steps.step("load images onto the nodes") as note:
                way.load(new, note)
        return {name: image.reference for name, image in built.items()}

    def _built(self, request: Request, shell: Shell, state: ClusterState) -> dict[str, Image]:
        built = ImageBuilder(self.cache, shell, self.steps, on_the_spot=state.on_the_spot).build()
        if request.image:
            built["emugpu"] = self._saved(request.image, state)
        return built

    def load(self, name: str, reference: str) -> None:
        """Brings an image of the engine, an archive, or one of ours (OPTIONAL) onto all nodes. Raises ClusterError."""
        state = self.state(name)
        way = self._way(state)
        if reference in OPTIONAL and state.way == KIND:
            builder = ImageBuilder(self.cache, way.kubectl.shell, self.steps, on_the_spot=state.on_the_spot)
            self._check_of_one_tree(builder, state)
            image = builder.build_optional(reference)
        else:
            image = self._saved(reference, state) if state.way == KIND else Image(reference, Path(reference))
        with self.steps.step(f"load {image.reference}") as note:
            way.load([image], note)

    def _check_of_one_tree(self, builder: ImageBuilder, state: ClusterState) -> None:
        """The chart asks for optional images by the tag of the product that it was installed with."""
        installed, made = state.images.get("emugpu", ""), f"emugpu:{builder.key('emugpu')}"
        if installed.startswith("emugpu:") and installed != made:
            raise ClusterError(
                f"cluster {state.spec.name!r} runs {installed} and this checkout makes {made}, whose images it would not find; "
                f"`emugpu cluster up --name {state.spec.name}`, with the options of before, installs this one first"
            )

    def _saved(self, reference: str, state: ClusterState) -> Image:
        return saved_image(self.cache, self._running_engine(state.spec.name), reference)

    def kubectl(self, name: str) -> Kubectl:
        """For a cluster that is complete. Raises ClusterError."""
        return self._way(self.state(name)).kubectl

    def down(self, name: str) -> None:
        """Removes the cluster (of an existing one: the chart's release, our labels, and the namespace if `up` made it);
        no error where there is none.

        With the last cluster our own engine ends, if we started one. Raises ClusterError.
        """
        with self.cache.lock(f"clusters/{name}"):
            state = self.directory(name).load()
            if state is None:
                self.steps.say(f"there is no cluster {name}")
            elif state.way == EXISTING:
                self._leave(state)
            else:
                self._delete(state)
            self.directory(name).remove()
        if not self.names():
            self._end_engine()

    def _leave(self, state: ClusterState) -> None:
        way = self._existing(state)
        with self.steps.step("uninstall the chart"):
            gone = self._chart(way, CHECKOUT / "charts" / "emugpu", state).uninstall(state.namespace_uid)
            product.unlabel_nodes(way.kubectl)
        if not gone:
            self.steps.say(f"namespace {product.NAMESPACE} was there before and stays")

    def _delete(self, state: ClusterState) -> None:
        shell = self._shell(state.spec.name)
        engine = running_engine(self.cache, shell)
        if engine is None:
            engine = ensure_engine(self.cache, shell, self.steps)  # its containers are there even if it isn't
        way = self._kind(state, engine, clients(self.cache, shell, self.steps))
        with self.steps.step(f"delete the nodes of {state.spec.name}"):
            way.delete()

    def _end_engine(self) -> None:
        engine = running_engine(self.cache, self._shell("engine"))
        if engine is not None and engine.own is not None and engine.is_idle():
            with self.steps.step("stop the Docker engine that was started for this"):
                for line in engine.own.stop():
                    self.steps.say(f"  {line}")

    def _shell(self, name: str) -> Shell:
        return Shell(
            self.directory(name).log if name != "engine" else self.cache.root / "logs" / "engine.log", self.environ
        )

    def _running_engine(self, name: str) -> Engine:
        engine = running_engine(self.cache, self._shell(name))
        if engine is None:
            raise ClusterError(
                f"the Docker engine of cluster {name!r} has ended; `emugpu cluster down --name {name}`, then up"
            )
        return engine

    def _way(self, state: ClusterState) -> KindWay | ExistingWay:
        if state.way == EXISTING:
            return self._existing(state)
        shell = self._shell(state.spec.name)
        return self._kind(state, self._running_engine(state.spec.name), clients(self.cache, shell, self.steps))

    def _existing(self, state: ClusterState) -> ExistingWay:
        shell = self._shell(state.spec.name)
        return existing_way(clients(self.cache, shell, self.steps), shell, Path(state.kubeconfig), state.context)

    def _kind(self, state: ClusterState, engine: Engine, programs: Clients, images: NodeImages = _NO_IMAGES) -> KindWay:
        directory = self.directory(state.spec.name)
        kind = Kind(programs.kind, engine, state.spec.name, images, state.on_the_spot)
        return KindWay(kind, directory, Kubectl(engine.shell, programs.kubectl, directory.kubeconfig))

    def _chart(self, way: Way, directory: Path, state: ClusterState) -> product.Chart:
        shell = self._shell(state.spec.name)
        return product.Chart(shell, clients(self.cache, shell, self.steps).helm, way.kubectl, directory)


def _must_name_an_image(request: Request) -> None:
    """Before anything is made. Raises InputError: the chart wants a name and a tag."""
    archive = "" if request.kubeconfig else ", or the path of a `docker save` archive"
    if not request.image or (archive and Path(request.image).is_file()):
        return
    if ":" not in request.image.rpartition("/")[2]:
        where = "for a cluster that exists" if request.kubeconfig else f"of the local engine{archive}"
        raise InputError("--image", f"must be NAME:TAG {where}, not {request.image!r}")
