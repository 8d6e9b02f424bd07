"""The life of a scheduler program: connect, serve, and leave what runs alone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.units import to_s
from emulator_runtime.http_server import HttpServer
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.kube import Api, KubeApi, configured
from operators.leader import Candidate, Leader, LeadershipLostError, Terms
from operators.results.predicted import ANNOTATION as PREDICTED
from operators.scheduling.cluster import Connection, KubernetesCluster, Thinking
from operators.scheduling.foretelling import Foreteller, Question, arriving, present_job
from operators.scheduling.identity import Host
from operators.scheduling.lines import as_json, in_words, ready_as_json
from operators.scheduling.memory import Memory
from operators.scheduling.metrics import SchedulerMetrics
from operators.scheduling.names import SYSTEM_NAMESPACE, check_name, lasting_name
from operators.scheduling.objects import Order
from operators.scheduling.past import Past
from operators.scheduling.scope import Scope, Until
from operators.scheduling.watcher import Tools
from operators.serving import loop_alive, status_server
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.view import JobView
from scheduler_sims.loop.open_loop import Decision, Listeners, OpenLoop
from scheduler_sims.policies.resolve import resolve_policy

EXIT_LOST = 1
TERMS = Terms()
"""Generous: a program that was killed is known as gone at once where its machine is still there (identity.py)."""


@dataclass(frozen=True)
class Options:
    """What the command line says. `name` and `namespace` empty: the policy's name, all namespaces. `epoch_ns`: wall clock.

    `lease_namespace` empty: `namespace`, and SYSTEM_NAMESPACE for all of them.
    """

    policy: str
    name: str = ""
    namespace: str = ""
    lease_namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    actuators: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str = ""
    costs: ClusterCosts = field(default_factory=ClusterCosts)
    estimates: str = "oracle"
    seed: int = 0
    profiles: Path | None = None
    explain: bool = False
    json: bool = False
    metrics_port: int = 0
    until: Until | None = None
    epoch_ns: int | None = None
    predictions: bool = True


class Program:
    """One scheduler. `print_line` gets a line per decision, `say` what people should know beside them."""

    def __init__(self, options: Options, print_line: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._options, self._print, self._say = options, print_line, say
        with redirect_stdout(sys.stderr):
            self.title, self._policy = resolve_policy(options.policy)
        self.name = options.name or _own_name(self.title)
        """What EmuJobs say in spec.scheduler.name."""
        profiles = ProfileTable.bundled()
        self._profiles = profiles if options.profiles is None else profiles.with_file(options.profiles)
        self._truth = OpenTruth(self._profiles)
        self._estimates = parse_estimates(options.estimates, self._truth, options.seed)
        if self._policy.needs_estimates and not self._estimates.available:
            raise PolicyError(f"policy {self.title} needs estimates of run times: use --estimates oracle or error:0.2")
        self._metrics = SchedulerMetrics(self.title)
        self._cluster = self._make_cluster()
        self._loop: OpenLoop | None = None
        self._foreteller = Foreteller(options.policy, self._profiles, monotonic_ns, self._foretold, self._not_foretold)
        self._present: list[PresentJob] | None = None
        """What there was before the events at hand, and the jobs that came with them; made where it is asked for."""
        self._told = ""
        self._stopping = False

    def run(self) -> int:
        """0: ended by a signal, or by `until`; 1: another scheduler of this name may act now. Raises errors of the tree."""
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            if self._options.metrics_port:
                server = self.status_server(self._options.metrics_port)
                server.start()
                stack.callback(server.close)
            stack.enter_context(self._signals())
            try:
                memory = self._connect()
            except KeyboardInterrupt:  # a signal while it was another one's turn
                return 0
            self._loop = self._make_loop(memory)
            if self._options.predictions:
                self._foreteller.start()
                stack.callback(self._foreteller.close)
            self._say(f"{self.title} schedules EmuJobs of scheduler {self.name}{self._where()}")
            if self._options.json:
                self._print(ready_as_json(self.name, self._options.policy, self._options.namespace, wall_ns()))
            try:
                with redirect_stdout(sys.stderr):  # what a policy prints must not get into our own output
                    self._loop.run()
            except LeadershipLostError as error:
                self._say(str(error))
                return EXIT_LOST
            except PolicyError as error:
                raise PolicyError(f"policy {self.title}: {error}") from error
        return 0

    @property
    def lease_namespace(self) -> str:
        """One for all that schedule the same jobs under the same name, wherever they run: not the kubeconfig's."""
        return self._options.lease_namespace or self._options.namespace or SYSTEM_NAMESPACE

    def status_server(self, port: int) -> HttpServer:
        """Metrics and probes. Raises ClusterError where the port is taken."""
        cluster = self._cluster
        alive = loop_alive(cluster.event_loop)
        return status_server(port, self._metrics.registry, healthy=alive, ready=lambda: cluster.problem)

    # --- making -----------------------------------------------------------------------------------------------------

    def _make_cluster(self) -> KubernetesCluster:
        options, host = self._options, Host.here()
        config = configured(options.kubeconfig, options.context)
        namespace, lasting = self.lease_namespace, lasting_name(self.name)

        def leader(api: Api) -> Leader:
            candidate = Candidate(namespace, lasting, host.identity(os.getpid()), TERMS, host.is_gone)
            return Leader(api, candidate, monotonic_ns, wall_ns)

        def tools(cluster: KubernetesCluster) -> Tools:
            return Tools(
                self._profiles,
                options.costs,
                self._truth,
                wall_ns,
                cluster.tell,
                self._say,
                lambda: cluster.may_act,
            )

        connection = Connection(lambda: KubeApi(config), leader, namespace, lasting)
        gangs = not getattr(self._policy, "one_node", False)
        scope = Scope(self.name, options.namespace, options.labels, options.actuators, options.until, gangs)
        return KubernetesCluster(connection, scope, tools)

    def _connect(self) -> Memory:
        return self._cluster.connect(Thinking(self._options.policy, _module(self._policy), self._options.epoch_ns))

    def _make_loop(self, memory: Memory) -> OpenLoop:
        explain = self._explain if self._options.explain else None
        return OpenLoop(
            self._cluster,
            self._options.costs,
            self._policy,
            self._estimates,
            Listeners(self._decided, self._failed, explain, self._submitted, self._noted),
            over=self._over,
            state=memory.state,
        )

    def _where(self) -> str:
        """Whose jobs, and where its lease is, by which one of several acts."""
        jobs = f" in namespace {self._options.namespace}" if self._options.namespace else ""
        return f"{jobs}; its lease is {self.lease_namespace}/{lasting_name(self.name)}"

    # --- while it runs ----------------------------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        self._metrics.count(decision)
        if self._options.json:
            self._print(as_json(decision, self._cluster.memory.epoch_ns))
        else:
            self._print(in_words(decision))
        self._keep()

    def _noted(self) -> None:
        assert self._loop is not None
        self._present = None
        views = self._loop.books.views.values()
        queued = sum(view.queued for view in views)
        self._metrics.jobs(queued, len(views) - queued)
        self._keep()

    def _submitted(self, job: PresentJob) -> None:
        """Asks when a job will be done that has never been asked about, where that can be answered in time."""
        now_ns, order = self._cluster.now_ns(), self._cluster.order_of(job.spec.job_id)
        arrived = arriving(job, to_s(now_ns))
        if order is not None and self._is_new(job, order) and self._foreteller.has_room and self._loop is not None:
            present, at_ns = self._snapshot(self._loop, to_s(now_ns)), self._cluster.memory.epoch_ns + now_ns
            question = Question(order.key.uid, arrived.spec, tuple(present), self._loop.cluster_spec, at_ns)
            self._foreteller.ask(question)
        if self._present is not None:
            self._present.append(arrived)

    def _is_new(self, job: PresentJob, order: Order) -> bool:
        asked = not self._options.predictions or PREDICTED in order.annotations
        return not (asked or job.allocation is not None or job.steps_done or job.preemptions)

    def _snapshot(self, loop: OpenLoop, now_s: float) -> list[PresentJob]:
        """One for all jobs that come together: a decision is waiting."""
        if self._present is None:
            specs, views = loop.books.specs, loop.books.views
            self._present = [present_job(specs[j], view, self._steps_of(view), now_s) for j, view in views.items()]
        return self._present

    def _steps_of(self, view: JobView) -> int:
        return self._cluster.steps_done(view.job_id) if view.running_since_s is not None else view.steps_done

    def _foretold(self, uid: str, text: str) -> None:
        self._cluster.annotate(uid, PREDICTED, text)

    def _not_foretold(self, problem: str) -> None:
        if self._options.explain:
            self._say(problem)

    def _keep(self) -> None:
        assert self._loop is not None
        views = self._loop.books.views
        pasts = {uid: Past.of(view) for job_id, view in views.items() if (uid := self._cluster.uid_of(job_id))}
        self._cluster.keep(
            Memory(self._cluster.memory.epoch_ns, self._options.policy, self._loop.state, pasts), self._kept
        )

    def _kept(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            if problem:
                self._say(problem)

    def _failed(self, error: PolicyError) -> bool:
        """A plan that can't be must not end a scheduler that others rely on; an experiment is worth nothing after it."""
        self._metrics.failures.inc()
        if self._options.until is not None:
            return False
        self._say(f"policy {self.title}: {error}; asking again when something happens")
        return True

    def _explain(self, now_s: float, job_id: str, reason: str) -> None:
        self._say(f"{now_s:10.3f} s  {job_id}: {reason}")

    def _over(self) -> bool:
        if self._stopping:
            return True
        until = self._options.until
        return until is not None and self._cluster.done >= until.jobs

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal lets the decision at hand be carried out, a second one ends at once."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            if self._stopping or self._loop is None:
                raise KeyboardInterrupt
            self._stopping = True
            self._cluster.wake()
            if self._loop.asking:
                with contextlib.suppress(RuntimeError):  # it came while something was being printed
                    self._say("ends when the policy has answered; a second Ctrl-C or SIGTERM ends it at once")

        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _own_name(title: str) -> str:
    """The policy's; the chart's RBAC reckons with it too. Raises InputError where it can't be a name."""
    name = title.partition(":")[0].lower().replace("_", "-")
    return check_name(name, "--policy", "; give the scheduler a name with --name")


def _module(policy: Policy) -> str:
    return type(policy).__module__


def parse_labels(texts: list[str], place: str) -> dict[str, str]:
    """LABEL=VALUE texts. Raises InputError at `place`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(place, f"{text!r} is no label; write LABEL=VALUE")
        found[name] = value
    return found
