"""One run of `emugpu cluster up`: check the machine, create or reuse the nodes, load images, install the chart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_harness.engine import Engine, ensure_engine, running_engine
from cluster_harness.images import CHECKOUT, Image, ImageBuilder, saved_image
from cluster_harness.nodes.providers import (
    ExistingCluster,
    KindProvider,
    Provider,
    has_stock_image,
    pull_stock_image,
    registry_answers,
)
from cluster_harness.offline.image_commit import with_product
from cluster_harness.offline.node_image import node_images
from cluster_harness.product import chart as product
from cluster_harness.product.readiness import missing_gpus
from cluster_harness.product.reshape import not_moved, removed_pools, renames, side_by_side, unobserved
from cluster_harness.programs import clients, components
from cluster_harness.request.spec import ClusterSpec, differences
from cluster_harness.requirements.work import EXISTING_CLUSTER, OFFLINE, REGISTRY, Work
from cluster_harness.site import Site
from cluster_harness.state import EXISTING, KIND, ClusterState
from emulator_runtime.domain.errors import ClusterError, InputError

PUBLIC_REDIS = "redis:7"
"""What an existing cluster pulls for the chart's Redis, unless --set redis.image.* names another."""
_GPUS_TIMEOUT_S = 180.0
_POOLS_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Request:
    """The arguments of `up`. `kubeconfig` given: an existing cluster, which needs an `image` that its nodes can pull.

    `image` otherwise: used instead of one built from the checkout. `reshape`: an existing cluster may get other pools.
    """

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
class Up:
    """One run. Every step may be repeated: steps that are done already are recognised and skipped."""

    site: Site
    request: Request

    def run(self) -> ClusterState:
        """The finished cluster's state. Raises ClusterError or InputError; a half-created cluster is deleted."""
        before = self.site.directory(self._name).load()
        state = self._wanted(before)
        if state.way == KIND:
            provider: Provider
            provider, state, baked = self._ensure_kind(state)
        else:
            provider, state, baked = *self._existing_cluster(state), False
        current = before.spec if before is not None and state.complete else state.spec
        state = replace(state, complete=True)
        self._save(state, current)
        with self._resumable():
            return self._install(provider, state, current, baked=baked)

    @property
    def _name(self) -> str:
        return self.request.spec.name

    def _save(self, state: ClusterState, shape: ClusterSpec) -> None:
        self.site.directory(self._name).save(replace(state, spec=shape))

    def _wanted(self, before: ClusterState | None) -> ClusterState:
        """The requested state. Raises ClusterError if the cluster of that name has another provider or kubeconfig."""
        directory, spec, kubeconfig = self.site.directory(self._name), self.request.spec, self.request.kubeconfig
        path = str(kubeconfig.absolute() if kubeconfig else directory.kubeconfig)
        way = EXISTING if kubeconfig else KIND
        if before is None or not before.complete:
            return ClusterState(spec, way, kubeconfig=path, context=self.request.context)
        if (before.way, before.kubeconfig, before.context) != (way, path, self.request.context):
            raise ClusterError(
                f"cluster {spec.name!r} is {before.kubeconfig}; take it down first, or choose another --name"
            )
        self._check_shape(before)
        return replace(before, spec=spec)

    def _check_shape(self, before: ClusterState) -> None:
        """A cluster gets another shape only with --reshape. Raises ClusterError."""
        spec, down = self.request.spec, f"`emugpu cluster down --name {self._name}`"
        if before.way == KIND and before.spec.workers != spec.workers:
            raise ClusterError(
                f"cluster {self._name!r} has {before.spec.workers} worker nodes, not {spec.workers}, and kind adds or "
                f"removes none: run {down} first, or choose another --name"
            )
        another = "; ".join(differences(before.spec, spec))
        if another and not self.request.reshape:
            raise ClusterError(
                f"cluster {self._name!r} has another shape: {another}. Give --reshape to change it in place (pods lose "
                f"devices that disappear), choose another --name, or run {down} first"
            )
        if another:
            self.site.steps.say(f"reshaping cluster {self._name}: {another}")

    def _existing_cluster(self, state: ClusterState) -> tuple[ExistingCluster, ClusterState]:
        """Nothing is stored before the cluster has answered and has enough nodes."""
        state = self._with_images_of_registries(state)
        self.site.require(self._work_on_existing(state))
        provider = self.site.existing(state)
        provider.exists()
        product.assign_pools(state.spec, provider.kubectl.nodes())
        return provider, state

    def _work_on_existing(self, state: ClusterState) -> Work:
        missing = self.site.missing_clients(state.spec.name, with_kind=False)
        chart = self.request.chart if self.request.with_chart else None
        return Work(EXISTING_CLUSTER, clients=missing, chart=chart, kubeconfig=Path(state.kubeconfig))

    def _with_images_of_registries(self, state: ClusterState) -> ClusterState:
        """The state with the images that nodes of an existing cluster pull. Raises InputError if none are given."""
        if self.request.image:
            return replace(state, images={"emugpu": self.request.image, "emugpu-redis": PUBLIC_REDIS})
        if self.request.with_chart and not state.images:
            fix = "build images/emugpu/Dockerfile, push it to a registry that its nodes reach and give its NAME:TAG"
            raise InputError("--image", f"is missing: the nodes of an existing cluster pull images themselves; {fix}")
        return state

    def _ensure_kind(self, state: ClusterState) -> tuple[KindProvider, ClusterState, bool]:
        """The running cluster or a new one, and whether the product's images are on its nodes already."""
        shell = self.site.shell(self._name)
        engine = running_engine(self.site.cache, shell)
        work = self._work_on_kind(state, engine, creating=not state.complete)
        self.site.require(work)
        engine = engine or ensure_engine(self.site.cache, shell, self.site.steps)
        if work.builds_components:
            components(self.site.cache, shell, self.site.steps)  # they have the clients too
        provider = self.site.kind(state, engine, clients(self.site.cache, shell, self.site.steps))
        if state.complete and provider.exists():
            self._check_answer(provider)
            self.site.steps.say(f"cluster {self._name} exists")
            return provider, state, False
        if provider.exists():
            self._delete_unfinished(provider)
        return self._create_kind(provider, replace(state, complete=False, images={}), work)

    def _work_on_kind(self, state: ClusterState, engine: Engine | None, *, creating: bool) -> Work:
        if state.complete and not creating:
            offline = state.on_the_spot
        else:
            offline = not has_stock_image(engine) and not registry_answers(self.site.shell(self._name))
            if offline:
                self.site.steps.say("no container registry gives kind's node image: the node image is built here")
        chart = self.request.chart if self.request.with_chart else None
        nodes = state.spec.workers + 1 if creating else 0
        return self.site.work_on_kind(OFFLINE if offline else REGISTRY, engine, nodes, chart)

    def _check_answer(self, provider: KindProvider) -> None:
        """Raises ClusterError if the API server doesn't answer, as after a restart of the engine: nodes have new addresses."""
        try:
            provider.kubectl("get", "nodes", timeout_s=30)
        except ClusterError as error:
            fix = f"was its engine restarted? `emugpu cluster down --name {self._name}`, then up"
            raise ClusterError(f"cluster {self._name!r} exists and doesn't answer; {fix} ({error})") from error

    def _delete_unfinished(self, provider: KindProvider) -> None:
        """Deletes the nodes of a run that didn't finish; clusters of others stay. Raises ClusterError."""
        if provider.directory.load() is None:
            raise ClusterError(
                f"kind has a cluster {self._name!r} that emugpu didn't create; choose another --name, or delete it"
            )
        self.site.steps.say(f"cluster {self._name} was not finished: starting again")
        provider.delete()

    def _create_kind(
        self, provider: KindProvider, state: ClusterState, work: Work
    ) -> tuple[KindProvider, ClusterState, bool]:
        """Creates the cluster. `work` was checked; more work (the nodes of a finished cluster are gone) is checked again."""
        engine = provider.kind.engine
        if not work.creates_nodes:
            work = self._work_on_kind(state, engine, creating=True)
            self.site.require(work)
        state = replace(state, on_the_spot=work.offline)
        if work.offline:
            images = node_images(self.site.cache, engine, engine.shell, self.site.steps)
            built = self._built(engine, state)
            archives = [image.archive for image in built.values()]
            images = with_product(images, archives, engine, self.site.steps)
            state = replace(state, images={name: image.reference for name, image in built.items()})
        else:
            images = pull_stock_image(engine, self.site.steps)
        provider = replace(provider, kind=replace(provider.kind, images=images, on_the_spot=work.offline))
        provider.directory.save(state)
        try:
            provider.create(state.spec, self.site.steps)
        except BaseException:
            self.site.steps.say("deleting the half-created cluster")
            provider.delete()
            provider.directory.forget()
            raise
        return provider, state, bool(state.images)

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.site.steps.say(
                f"the nodes stay up: the same command continues from here, `emugpu cluster down --name {self._name}` "
                "deletes them"
            )
            raise

    def _install(self, provider: Provider, state: ClusterState, current: ClusterSpec, *, baked: bool) -> ClusterState:
        """`current`: the shape of the nodes; it stays in the state file until they have the new one, so that a run that fails
        can be repeated. `baked`: the images are part of the node image."""
        if state.way == KIND and not baked:
            state = replace(state, images=self._load_images(provider, state))
        self._save(state, current)
        chart = self.site.chart(state, provider.kubectl, self.request.chart)
        if not self.request.with_chart:
            return self._without_chart(chart, provider, state)
        if renames(current, state.spec) and chart.is_installed():
            self._move_nodes(provider, chart, state, current)
        else:
            self._label(provider, state)
        with self.site.steps.step("install the chart"):
            state = replace(state, namespace_uid=chart.make_namespace() or state.namespace_uid)
            self._save(state, state.spec)
            values = product.values(state.spec, state.images)
            chart.install(values, self.request.helm_arguments, wait=self.request.wait)
        if self.request.wait:
            with self.site.steps.step("wait for the GPUs"):
                nodes = provider.kubectl.nodes
                provider.kubectl.wait("GPUs", lambda: missing_gpus(state.spec, nodes()), _GPUS_TIMEOUT_S)
        return state

    def _label(self, provider: Provider, state: ClusterState) -> None:
        with self.site.steps.step("label the nodes with their pools"):
            product.label_nodes(provider.kubectl, state.spec)
        self._save(state, state.spec)

    def _without_chart(self, chart: product.Chart, provider: Provider, state: ClusterState) -> ClusterState:
        self._label(provider, state)
        if chart.is_installed():
            self.site.steps.say("the installed chart stays as it is: --no-chart neither changes nor removes it")
        return state

    def _move_nodes(self, provider: Provider, chart: product.Chart, state: ClusterState, current: ClusterSpec) -> None:
        """Moves nodes to pools with other names; the module `reshape` says why it takes two installs."""
        kubectl, removed = provider.kubectl, removed_pools(current, state.spec)
        with self.site.steps.step("install the new pools beside the old ones"):
            both = product.values(side_by_side(current, state.spec), state.images)
            chart.install(both, self.request.helm_arguments, wait=False)
            pools = ("emugpupools.emugpu.dev",)
            kubectl.wait("pools", lambda: unobserved(kubectl.get(*pools)["items"]), _POOLS_TIMEOUT_S)
        self._label(provider, state)
        with self.site.steps.step("wait for the nodes to change pools"):
            kubectl.wait("nodes", lambda: not_moved(kubectl.nodes(), removed), _POOLS_TIMEOUT_S)

    def _load_images(self, provider: Provider, state: ClusterState) -> dict[str, str]:
        built = self._built(self.site.running_engine(self._name), state)
        changed = [image for name, image in built.items() if state.images.get(name) != image.reference]
        if changed:
            with self.site.steps.step("load images onto the nodes") as report:
                provider.load(changed, report)
        return {name: image.reference for name, image in built.items()}

    def _built(self, engine: Engine, state: ClusterState) -> dict[str, Image]:
        builder = ImageBuilder(self.site.cache, engine.shell, self.site.steps, on_the_spot=state.on_the_spot)
        built = builder.build()
        if self.request.image:
            built["emugpu"] = saved_image(self.site.cache, engine, self.request.image)
        return built


def must_name_an_image(request: Request) -> None:
    """Raises InputError unless --image is NAME:TAG or an archive, since the chart needs a name and a tag; the first check."""
    archive = "" if request.kubeconfig else ", or the path of a `docker save` archive"
    if not request.image or (archive and Path(request.image).is_file()):
        return
    if ":" not in request.image.rpartition("/")[2]:
        where = "for an existing cluster" if request.kubeconfig else f"of the local engine{archive}"
        raise InputError("--image", f"must be NAME:TAG {where}, not {request.image!r}")
