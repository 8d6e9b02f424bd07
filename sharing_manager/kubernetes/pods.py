"""Finds the pod of a process: its cgroup contains the pod's UID, and the API server knows the pod's name and job.

For a known pod the answer comes at once. For unknown pods the pods of this node are listed, once for all waiting
processes. While the API server is down, processes wait for up to a minute and are then asked to retry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError, RefusedError
from emulator_runtime.domain.units import to_ns
from emulator_runtime.ipc.poller import CallSoon
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes import cgroup, objects
from sharing_manager.kubernetes.api_server import ApiServer, ApiServerError, request_backoff
from sharing_manager.kubernetes.cgroup import PodCgroup
from sharing_manager.kubernetes.objects import ContainerFacts, PodFacts
from sharing_manager.kubernetes.problem_log import ProblemLog

GIVE_UP_S = 60.0
"""Maximum time that a process waits for the API server before it is asked to retry (host seconds)."""
NAME_WAIT_S = 2.0
"""Maximum time that it waits for the kubelet's report of its container's name; after that only its pod is known (host
seconds)."""
_LIST_INTERVAL_S = 0.25
"""Minimum time between two lists; requests within it share the next list (host seconds)."""
_PAGE = "50"

OnIdentity = Callable[[PodIdentity | EmuGpuError], None]


def list_pods(api: ApiServer, node: str, *, cached: bool = False) -> list[PodFacts]:
    """All pods of the node, read in pages so that the answers stay small. Raises ApiServerError.

    Without a resourceVersion the list is up to date and contains every pod with a running process, but the API server may
    have to read all pods of the cluster from etcd. With version 0 (`cached`) it answers from its memory: the list may be a
    moment old, and may come on one page. Source: Kubernetes API concepts, "Semantics for get and list".
    """
    query, pods = {"fieldSelector": f"spec.nodeName={node}", "limit": _PAGE}, list[PodFacts]()
    if cached:
        query["resourceVersion"] = "0"
    while True:
        page = objects.listing(api.get("/api/v1/pods", query))
        pods += (objects.pod(item) for item in page.items)
        if not page.next_page:
            return pods
        # a continue token contains its version; the API refuses another one beside it
        query.pop("resourceVersion", None)
        query["continue"] = page.next_page


@dataclass(frozen=True)
class _Request:
    """A process to be identified. `pods` are those of its cgroup, outermost first."""

    pid: int
    pods: tuple[PodCgroup, ...]
    done: OnIdentity
    since_ns: int


class PodDirectory:
    """An Identifier. `step` is called by one thread of the border, the other methods by the poller's thread."""

    def __init__(
        self, api: ApiServer, node: str, poller: CallSoon, wake: Callable[[], None], proc: Path = Path("/proc")
    ) -> None:
        self._api, self._node, self._poller, self._wake, self._proc = api, node, poller, wake, proc
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []
        self._known: dict[str, PodFacts] = {}
        self.on_listed: Callable[[list[PodFacts]], None] = lambda _: None
        """Called with each list of the node's pods, in the thread of `step`, before the waiting processes get their
        answers."""
        self._next_ns = 0
        self._failure: ApiServerError | None = None
        self._backoff = request_backoff(f"{node}/pods")
        self._problems = ProblemLog(f"node {node}: the API server lists its pods again")

    def identify(self, pid: int, done: OnIdentity) -> None:
        """See Identifier. `done` gets RefusedError for a process outside of all pods, ManagerUnavailableError after a
        minute."""
        try:
            request = _Request(pid, self._pods_of(pid), done, monotonic_ns())
        except RefusedError as error:
            self._answer(done, error)
            return
        with self._lock:
            identity = self._find(request, exact=True, fresh=False)
            if identity is None:
                self._waiting.append(request)
        if identity is not None:
            self._answer(done, identity)
        else:
            self._wake()

    def remember(self, identity: PodIdentity) -> None:
        """See Identifier. A later list from the API server replaces this pod."""
        container = ContainerFacts(identity.container, listed=not identity.init_container)
        with self._lock:
            known = self._known.get(identity.pod_uid)
            started = {**known.started} if known else {}
            if identity.container and identity.container_id:
                started[identity.container_id] = container
            facts = PodFacts(
                uid=identity.pod_uid,
                namespace=identity.namespace,
                name=identity.pod,
                job_key=identity.job_key,
                containers=(),
                started=started,
                cgroup_uid=identity.pod_uid,
            )
            self._known[identity.pod_uid] = replace(known, started=started) if known else facts

    def step(self, now_ns: int) -> int | None:
        """List the pods if a process waits for it. Returns when to call again (None: not before `wake`)."""
        with self._lock:
            waiting = tuple(self._waiting)
        if not waiting:
            return None
        fresh = now_ns >= self._next_ns and self._list(waiting)
        self._settle(waiting, fresh=fresh)
        with self._lock:
            deadlines = [deadline for request in self._waiting for deadline in self._deadlines(request)]
        return min([self._next_ns, *deadlines]) if deadlines else None

    def _list(self, waiting: Sequence[_Request]) -> bool:
        """Update `_known` by a list made after these processes connected. False if that failed."""
        try:
            pods = self._pods_for(waiting)
        except ApiServerError as error:
            self._failure = error
            self._problems.report(f"node {self._node}: can't identify pods: {error}")
            self._next_ns = monotonic_ns() + to_ns(self._backoff.next_s())
            return False
        self._failure = None
        self._problems.clear()
        self._backoff.reset()
        self._next_ns = monotonic_ns() + to_ns(_LIST_INTERVAL_S)
        with self._lock:
            self._known = {pod.cgroup_uid: pod for pod in pods}
        self.on_listed(pods)
        return True

    def _pods_for(self, waiting: Sequence[_Request]) -> list[PodFacts]:
        """The API server's cached list, if it has all these processes' outermost pods (see `_find`), else a list from
        etcd."""
        pods = list_pods(self._api, self._node, cached=True)
        if {request.pods[0].pod_uid for request in waiting} <= {pod.cgroup_uid for pod in pods}:
            return pods
        return list_pods(self._api, self._node)

    def _settle(self, waiting: Sequence[_Request], *, fresh: bool) -> None:
        """Send the answers that are known now. `fresh`: the list was made after these processes connected."""
        now_ns = monotonic_ns()
        for request in waiting:
            waited_ns = now_ns - request.since_ns
            answer: PodIdentity | EmuGpuError | None
            with self._lock:
                answer = self._find(request, exact=waited_ns < to_ns(NAME_WAIT_S), fresh=fresh)
                known = self._known_pod(request, fresh=fresh) is not None
            if answer is None and fresh and not known:
                answer = self._refusal(request)
            elif answer is None and waited_ns >= to_ns(GIVE_UP_S):
                why = self._failure or "the API server was not asked in time"
                answer = ManagerUnavailableError(f"can't tell which pod process {request.pid} belongs to: {why}")
            if answer is not None:
                with self._lock:
                    self._waiting.remove(request)
                self._answer(request.done, answer)

    def _deadlines(self, request: _Request) -> tuple[int, ...]:
        """When `request` gets another answer even without the API server. Call with the lock held."""
        give_up_ns = request.since_ns + to_ns(GIVE_UP_S)
        known = self._known_pod(request, fresh=False) is not None
        return (request.since_ns + to_ns(NAME_WAIT_S), give_up_ns) if known else (give_up_ns,)

    def _known_pod(self, request: _Request, *, fresh: bool) -> tuple[PodFacts, PodCgroup] | None:
        """The outermost known pod on the path. Unless `_known` is `fresh`, only the outermost pod is looked up: if it is
        unknown, it may be a new pod of this node, and a process in it could have created the rest of the path."""
        for candidate in request.pods if fresh else request.pods[:1]:
            pod = self._known.get(candidate.pod_uid)
            if pod is not None:
                return pod, candidate
        return None

    def _find(self, request: _Request, *, exact: bool, fresh: bool) -> PodIdentity | None:
        """The identity of that pod. `exact`: only if its container's name is known."""
        known = self._known_pod(request, fresh=fresh)
        if known is None:
            return None
        pod, pod_cgroup = known
        named = pod.container(pod_cgroup.container_id) is not None
        return pod.identity(pod_cgroup) if named or not exact else None

    def _answer(self, done: OnIdentity, answer: PodIdentity | EmuGpuError) -> None:
        self._poller.call_soon(lambda: done(answer))

    def _pods_of(self, pid: int) -> tuple[PodCgroup, ...]:
        """Read the cgroup while the process is connected, before its pid can be reused. Raises RefusedError."""
        if pid <= 0:
            fix = "run the manager's pod with hostPID: true"
            raise RefusedError(f"the kernel shows no process id for this connection, so no pod can be found: {fix}")
        path = self._proc / str(pid) / "cgroup"
        try:
            pods = cgroup.parse_all(path.read_text(encoding="utf-8", errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            raise RefusedError(f"process {pid} has ended, or the manager's pod runs without hostPID: true") from None
        except OSError as error:
            fix = "the manager's container must run as root, in a pod with hostPID: true"
            raise RefusedError(f"{path}: can't be read ({error.strerror}); {fix}") from error
        if not pods:
            fix = "start it in a pod that requests emulated GPUs"
            raise RefusedError(
                f"process {pid} runs outside of all pods of this node, but its token belongs to a pod; {fix}"
            )
        return pods

    def _refusal(self, request: _Request) -> RefusedError:
        uids = ", ".join(pod.pod_uid for pod in request.pods)
        return RefusedError(
            f"process {request.pid} runs in pod {uids}, which node {self._node} doesn't have (any more)"
        )
