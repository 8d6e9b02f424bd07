"""The life of a scheduler process: connect, run the loop until a signal or the stop condition, disconnect. Jobs run on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from types import FrameType
from uuid import uuid4

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.http_server import HttpServer
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.controllers.leader_election import Candidate, Leader, LeadershipLostError
from operators.controllers.status_server import loop_alive, status_server
from operators.kube import kubeconfig
from operators.kube.api import Api
from operators.kube.client import KubeApi
from operators.objects.scheduler_notes import ANNOTATION as PROBLEM
from operators.scheduling.cluster import Connection, KubernetesCluster, Successor
from operators.scheduling.complaints import Complaint, ComplaintLog, complaint_of
from operators.scheduling.metrics import SchedulerMetrics
from operators.scheduling.names import SYSTEM_NAMESPACE, check_name, lasting_name
from operators.scheduling.options import Options
from operators.scheduling.output import as_json, in_words, ready_as_json
from operators.scheduling.predict.job_predictions import JobPredictions
from operators.scheduling.remember.handover import AttainedService, Handover
from operators.scheduling.track.tracked_jobs import Scope
from operators.scheduling.watcher import Dependencies
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.policy import Policy
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Decision, Ending, Listeners
from scheduler_sims.policies.resolve import resolve_policy

EXIT_LOST = 1
"""Exit status if another scheduler of this name holds the lease now."""


class Program:
    """One scheduler. `print_line` gets a line per decision (stdout), `say` other messages (stderr)."""

    def __init__(self, options: Options, print_line: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._options, self._print, self._say = options, print_line, say
        with redirect_stdout(sys.stderr):
            self.title, self._policy = resolve_policy(options.policy)
        self.name = options.name or _own_name(self.title)
        """The value of spec.scheduler.name in its EmuJobs."""
        profiles = ProfileTable.bundled()
        self._profiles = profiles if options.profiles is None else profiles.with_file(options.profiles)
        self._truth = OpenTruth(self._profiles)
        self._estimates = parse_estimates(options.estimates, self._truth, options.seed)
        if self._policy.needs_estimates and not self._estimates.available:
            raise PolicyError(f"policy {self.title} needs estimates of run times: use --estimates oracle or error:0.2")
        self._metrics = SchedulerMetrics(self.title)
        self._cluster = self._make_cluster()
        self._loop: SchedulerLoop | None = None
        self._predictions = JobPredictions(
            options.policy, self._profiles, self._cluster, say if options.explain else _silent
        )
        self._reported_problem = ""
        self._complaints, self._lock = ComplaintLog(), threading.Lock()
        self._refused_plans: dict[str, str] = {}
        """By job id: uids of EmuJobs that are annotated with the reason why a plan could not be carried out."""
        self._failures = self._failures_before = 0
        self._stopping = False

    def run(self) -> int:
        """Returns 0 after a signal or when `until` holds; EXIT_LOST if another scheduler of this name may act now.

        Raises errors of the tree.
        """
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            if self._options.metrics_port:
                server = self.status_server(self._options.metrics_port)
                server.start()
                stack.callback(server.close)
            stack.enter_context(self._signals())
            try:
                handover = self._connect()
            except KeyboardInterrupt:  # a signal while another scheduler held the lease
                return 0
            self._loop = self._make_loop(handover)
            if self._options.predictions:
                self._predictions.start()
                stack.callback(self._predictions.close)
            self._say(f"{self.title} schedules EmuJobs of scheduler {self.name}{self._scope_text()}")
            if self._options.json:
                self._print(ready_as_json(self.name, self._options.policy, self._options.namespace, wall_ns()))
            try:
                with redirect_stdout(sys.stderr):  # what a policy prints must not mix with the decisions
                    self._loop.run()
            except LeadershipLostError as error:
                self._say(str(error))
                return EXIT_LOST
            except PolicyError as error:
                raise PolicyError(f"policy {self.title}: {error}") from error
        return 0

    @property
    def lease_namespace(self) -> str:
        """The same for all processes that schedule the same jobs under the same name, whatever their kubeconfigs say."""
        return self._options.lease_namespace or self._options.namespace or SYSTEM_NAMESPACE

    def status_server(self, port: int) -> HttpServer:
        """The HTTP server of metrics and probes. Raises ClusterError if the port is in use."""
        cluster = self._cluster
        alive = loop_alive(cluster.event_loop)
        return status_server(port, self._metrics.registry, healthy=alive, ready=lambda: cluster.problem)

    # --- construction -----------------------------------------------------------------------------------------------

    def _make_cluster(self) -> KubernetesCluster:
        options = self._options
        config = kubeconfig.connection(options.kubeconfig, options.context)
        namespace, lasting = self.lease_namespace, lasting_name(self.name)

        def leader(api: Api) -> Leader:
            candidate = Candidate(namespace, lasting, self._options.identity or f"{os.uname().nodename}_{uuid4()}")
            return Leader(api, candidate, monotonic_ns, wall_ns)

        def dependencies(cluster: KubernetesCluster) -> Dependencies:
            return Dependencies(
                profiles=self._profiles,
                costs=options.costs,
                truth=self._truth,
                wall_ns=wall_ns,
                deliver=cluster.deliver,
                say=self._say,
                complain=self._complain,
                may_act=lambda: cluster.may_act,
            )

        connection = Connection(lambda: KubeApi(config), leader, namespace, lasting)
        gangs = not getattr(self._policy, "one_node", False)
        scope = Scope(self.name, options.namespace, options.labels, options.actuators, options.until, gangs)
        return KubernetesCluster(connection, scope, dependencies)

    def _connect(self) -> Handover:
        return self._cluster.connect(Successor(self._options.policy, _module(self._policy), self._options.epoch_ns))

    def _make_loop(self, handover: Handover) -> SchedulerLoop:
        explain = self._explain if self._options.explain else None
        loop = SchedulerLoop(
            self._cluster,
            ClusterSpec((), self._options.costs),  # nodes arrive with the first event
            self._policy,
            self._estimates,
            (),
            ending=Ending(lambda _books: self._over(), endless=True),
            listeners=Listeners(
                explain=explain,
                submitted=self._submitted,
                noted=self._noted,
                decided=self._decided,
                failed=self._failed,
            ),
        )
        loop.state = handover.state
        return loop

    def _scope_text(self) -> str:
        """Which jobs, and where the lease is."""
        jobs = f" in namespace {self._options.namespace}" if self._options.namespace else ""
        return f"{jobs}; its lease is {self.lease_namespace}/{lasting_name(self.name)}"

    # --- while it runs ----------------------------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        self._metrics.count(decision)
        if self._options.json:
            self._print(as_json(decision, self._cluster.handover.epoch_ns))
        else:
            self._print(in_words(decision))
        self._resolve(decision)
        self._keep()

    def _noted(self) -> None:
        assert self._loop is not None
        self._predictions.forget()
        views = self._loop.books.views.values()
        queued = sum(view.queued for view in views)
        self._metrics.set_jobs(queued, len(views) - queued)
        self._keep()

    def _submitted(self, job: PresentJob) -> None:
        self._clear_problem(job.spec.job_id)
        if self._options.predictions and self._loop is not None:
            self._predictions.submitted(job, self._loop)

    def _keep(self) -> None:
        assert self._loop is not None
        views = self._loop.books.views
        attained = {
            uid: AttainedService.of(view) for job_id, view in views.items() if (uid := self._cluster.uid_of(job_id))
        }
        self._cluster.keep(
            Handover(self._cluster.handover.epoch_ns, self._options.policy, self._loop.state, attained), self._kept
        )

    def _kept(self, problem: str) -> None:
        if problem != self._reported_problem:
            self._reported_problem = problem
            if problem:
                self._say(problem)

    def _failed(self, error: PolicyError) -> bool:
        """Returns whether to continue: a wrong plan must not end a scheduler in service, but it invalidates an experiment."""
        self._metrics.failures.inc()
        self._failures += 1
        complaint = complaint_of(error, self.title, self._cluster.uid_of)
        if complaint.uid:
            self._refused_plans[complaint.job_id] = complaint.uid
        self._complain(complaint)
        return self._options.until is None

    def _complain(self, complaint: Complaint) -> None:
        """Prints a complaint if it is due, and annotates its EmuJob. Called by the loop's thread and by the asyncio thread."""
        with self._lock:
            report = self._complaints.add(complaint, wall_ns())
        if report is None:
            return
        if self._options.json:
            self._print(report.as_json())
        self._say(report.in_words())
        if complaint.uid:
            self._cluster.annotate(complaint.uid, PROBLEM, report.annotation())

    def _resolve(self, decision: Decision) -> None:
        """Withdraws complaints: about jobs that start, and about earlier plans once a plan was carried out."""
        for job_id in decision.started:
            with self._lock:
                self._complaints.resolve(job_id)
            self._clear_problem(job_id)
        if self._failures == self._failures_before:
            for uid in self._refused_plans.values():
                self._cluster.annotate(uid, PROBLEM, None)
            self._refused_plans.clear()
        self._failures_before = self._failures

    def _clear_problem(self, job_id: str) -> None:
        emujob = self._cluster.emujob_of(job_id)
        if emujob is not None and PROBLEM in emujob.annotations:
            self._cluster.annotate(emujob.key.uid, PROBLEM, None)

    def _explain(self, now_s: float, job_id: str, reason: str) -> None:
        self._say(f"{now_s:10.3f} s  {job_id}: {reason}")

    def _over(self) -> bool:
        if self._stopping:
            return True
        until = self._options.until
        return until is not None and self._cluster.done >= until.jobs

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal ends the loop after the current decision, a second one ends the process at once."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            if self._stopping or self._loop is None:
                raise KeyboardInterrupt
            self._stopping = True
            self._cluster.wake()
            if self._loop.asking:
                with contextlib.suppress(RuntimeError):  # the signal came during another print
                    self._say("ending after the policy's answer; a second Ctrl-C or SIGTERM ends at once")

        before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _own_name(title: str) -> str:
    """The policy's name, which the chart's RBAC uses too. Raises InputError if it is not a valid name of a scheduler."""
    name = title.partition(":")[0].lower().replace("_", "-")
    return check_name(name, "--policy", "; give the scheduler a name with --name")


def _silent(_text: str) -> None:
    pass


def _module(policy: Policy) -> str:
    return type(policy).__module__
