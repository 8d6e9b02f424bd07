"""The commands of `emugpu cluster`: up, load, down and status. Every command may be repeated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cluster_harness.engine import ensure_engine, running_engine
from cluster_harness.images import OPTIONAL, SPECS, Image, ImageBuilder, saved_image
from cluster_harness.nodes.kubectl import Kubectl
from cluster_harness.product import chart as product
from cluster_harness.programs import clients, missing_clients
from cluster_harness.requirements.work import OFFLINE, REGISTRY, Work
from cluster_harness.site import Site
from cluster_harness.state import EXISTING, KIND, ClusterState, cluster_names
from cluster_harness.up import Request, Up, must_name_an_image
from emulator_runtime.domain.errors import ClusterError


@dataclass(frozen=True)
class Clusters(Site):
    """All clusters of one cache directory."""

    def names(self) -> list[str]:
        return cluster_names(self.cache.root)

    def state(self, name: str) -> ClusterState:
        """The state of a complete cluster. Raises ClusterError if there is no such cluster or it was never completed."""
        state = self.directory(name).load()
        if state is None:
            others = f"; there are: {', '.join(self.names())}" if self.names() else ""
            raise ClusterError(f"there is no cluster {name!r}{others} (emugpu cluster up --name {name} creates it)")
        if not state.complete:
            raise ClusterError(
                f"cluster {name!r} was not finished; run `emugpu cluster up --name {name}` again, or `down`"
            )
        return state

    def kubectl(self, name: str) -> Kubectl:
        """kubectl for a complete cluster. Raises ClusterError."""
        return self.provider(self.state(name)).kubectl

    def up(self, request: Request) -> ClusterState:
        """Creates the cluster, or changes it to what is requested. Raises ClusterError or InputError."""
        must_name_an_image(request)
        with self.cache.lock(f"clusters/{request.spec.name}"):
            return Up(self, request).run()

    def load(self, name: str, reference: str) -> None:
        """Brings an image of the engine, an archive, or one of OPTIONAL onto all nodes. Raises ClusterError."""
        state = self.state(name)
        provider = self.provider(state)
        if state.way == EXISTING:
            image = Image(reference, Path(reference))
        elif reference in OPTIONAL:
            image = self._built_optional(state, reference)
        else:
            image = saved_image(self.cache, self.running_engine(name), reference)
        with self.steps.step(f"load {image.reference}") as report:
            provider.load([image], report)

    def _built_optional(self, state: ClusterState, name: str) -> Image:
        """The chart refers to optional images by the tag of the product that it was installed with."""
        engine = self.running_engine(state.spec.name)
        builder = ImageBuilder(self.cache, engine.shell, self.steps, on_the_spot=state.on_the_spot)
        work = self.work_on_kind(OFFLINE if state.on_the_spot else REGISTRY, engine, 0, None)
        self.require(replace(work, builds_images=bool(builder.missing((*SPECS, name)))))
        installed, made = state.images.get("emugpu", ""), f"emugpu:{builder.key('emugpu')}"
        if installed.startswith("emugpu:") and installed != made:
            raise ClusterError(
                f"cluster {state.spec.name!r} runs {installed} and this checkout makes {made}, whose images it would not "
                f"find; `emugpu cluster up --name {state.spec.name}`, with the options of before, installs this one first"
            )
        return builder.build_optional(name)

    def down(self, name: str) -> None:
        """Deletes the cluster; of an existing one only the chart's release, our labels, and the namespace if `up` created it.

        No error where there is none. With the last cluster an engine ends that `up` started. Raises ClusterError.
        """
        with self.cache.lock(f"clusters/{name}"):
            state = self.directory(name).load()
            if state is None:
                self.steps.say(f"there is no cluster {name}")
            elif state.way == KIND:
                self._delete_nodes(state)
            else:
                self._uninstall(state)
            self.directory(name).remove()
        if not self.names():
            self._stop_engine()

    def _uninstall(self, state: ClusterState) -> None:
        provider = self.existing(state)
        with self.steps.step("uninstall the chart"):
            gone = self.chart(state, provider.kubectl).uninstall(state.namespace_uid)
            product.unlabel_nodes(provider.kubectl)
        if not gone:
            self.steps.say(f"namespace {product.NAMESPACE} existed before and stays")

    def _delete_nodes(self, state: ClusterState) -> None:
        """Starts the engine if it doesn't run, since the nodes' containers must be deleted."""
        shell = self.shell(state.spec.name)
        self.require(Work(OFFLINE if state.on_the_spot else REGISTRY, clients=missing_clients(self.cache, shell)))
        engine = ensure_engine(self.cache, shell, self.steps)
        provider = self.kind(state, engine, clients(self.cache, shell, self.steps))
        with self.steps.step(f"delete the nodes of {state.spec.name}"):
            provider.delete()

    def _stop_engine(self) -> None:
        engine = running_engine(self.cache, self.engine_shell())
        if engine is not None and engine.own is not None and engine.is_idle():
            with self.steps.step("stop the Docker engine that `up` started"):
                for line in engine.own.stop():
                    self.steps.say(f"  {line}")
