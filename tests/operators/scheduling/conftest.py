"""Kubernetes in miniature around an API server in memory: the EmuJobs' controller, the Job controller, kubelets.

Time is counted by hand: nothing happens but what `World.turn` makes happen, so that a story is the same each time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step
from operators.kube.api import CONFIG_MAP, EMUJOB, JOB, NODE, POD, POOL, Resource
from operators.kube.informer import Pauses
from operators.kube.timestamps import rfc3339, rfc3339_micro
from operators.scheduling.complaints import Complaint
from operators.scheduling.remember.handover import AttainedService, EncodedState, Handover
from operators.scheduling.remember.keeper import Keeper
from operators.scheduling.track.tracked_jobs import Scope
from operators.scheduling.watcher import Dependencies, Watcher
from scheduler_sims.clusters.base import Capabilities, Event, Start
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Decision, Ending, Listeners
from scheduler_sims.policies.resolve import resolve_policy
from tests.support.fake_api import FakeApi

START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
NS = 10**9


def node(name: str, gpus: int = 2, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "64Gi"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": f"host-{name}"}},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": {**amounts, "emugpu.dev/emuGPU": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pool(gpus: int = 2, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {"metadata": metadata, "spec": {"gpus": [{"type": "V100", "count": gpus}], **spec}}


class Killed(BaseException):
    """The program ends here, without another word."""


class MiniatureApi(FakeApi):
    """Deleted pods take their time; writes are counted, and the program can be killed before or after one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.kill_at: int | None = None
        self.kill_after = False
        self.now_ns = START_NS

    async def patch(self, resource: Resource, name: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
        pending = self.failures.pop("patch", []) if resource is CONFIG_MAP else []  # they are meant for jobs and pods
        try:
            return await self._counted(super().patch(resource, name, document, manager))
        finally:
            self.failures.setdefault("patch", []).extend(pending)

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        await self._counted(super().bind(pod, namespace, uid, node))

    async def create(self, resource: Resource, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        return await self._counted(super().create(resource, document, manager))

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        await self._counted(self._delete(resource, name, namespace, uid))

    async def _delete(self, resource: Resource, name: str, namespace: str, uid: str) -> None:
        pod = self.objects.get("pods", {}).get(f"{namespace}/{name}")
        if resource is not POD or pod is None or uid not in ("", pod["metadata"]["uid"]):
            await super().delete(resource, name, namespace, uid=uid)
        elif "deletionTimestamp" not in pod["metadata"]:
            self._fail("delete")
            self.log.append(("delete", "pods", name))
            times = {"deletionTimestamp": rfc3339(self.now_ns), "deletedNs": self.now_ns}
            self.put(POD, {**pod, "metadata": {**pod["metadata"], **times}})

    async def _counted(self, write: Coroutine[Any, Any, Any]) -> Any:
        self.writes += 1
        if self.writes == self.kill_at and not self.kill_after:
            write.close()
            raise Killed
        answer = await write
        if self.writes == self.kill_at:
            raise Killed
        return answer


@dataclass
class World:
    """One cluster. `now_s` since START_NS; a step of each job takes as long as its EmuJob says."""

    api: MiniatureApi = field(default_factory=lambda: MiniatureApi())
    now_ns: int = START_NS
    made: int = 0
    start_s: float = 1.0
    stop_s: float = 0.5
    since: dict[str, int] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    samples: dict[str, tuple[int, int]] = field(default_factory=dict)
    """When the last step of each elastic job ended, and its samples since the beginning."""
    runs: list[tuple[str, str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: int = 1, gpus: int = 2, **pool_spec: Any) -> World:
        world = cls()
        world.api.put(POOL, pool(gpus, **pool_spec))
        for number in range(1, nodes + 1):
            world.api.put(NODE, node(f"w{number}", gpus))
        return world

    @property
    def wall_ns(self) -> int:
        return self.now_ns

    # --- what users do ----------------------------------------------------------------------------------------------

    def submit(self, name: str, seconds: float = 10, *, actuator: str = "jobs", **more: Any) -> None:
        metadata = more.pop("metadata", {})
        steps = more.pop("steps", 10)
        work = {} if "model" in more else {"stepTime": f"{seconds / steps:g}s", "memory": "1Gi"}
        spec = {
            "steps": steps,
            **work,
            "scheduler": {
                "actuator": actuator,
                "name": "s",
                "schedulerName": "s" if actuator == "binding" else "default-scheduler",
            },
            **more,
        }
        self.made += 1
        self.api.put(
            EMUJOB,
            {
                "metadata": {"name": name, "namespace": "lab", "uid": f"job-{self.made}", "generation": 1, **metadata},
                "spec": spec,
            },
        )

    def hold(self, name: str, *, suspend: bool) -> None:
        document = json.loads(json.dumps(self.emujob(name)))
        document["spec"]["suspend"] = suspend
        self.api.put(EMUJOB, document)

    def remove(self, name: str) -> None:
        self.api.remove(EMUJOB, f"lab/{name}")

    # --- what is there ----------------------------------------------------------------------------------------------

    def emujob(self, name: str) -> dict[str, Any]:
        return self.api.stored(EMUJOB, f"lab/{name}")

    def phase(self, name: str) -> str:
        return str(self.emujob(name).get("status", {}).get("phase", ""))

    def job(self, name: str) -> dict[str, Any] | None:
        return self.api.objects.get("jobs", {}).get(f"lab/{name}")

    def pods(self, name: str = "") -> list[dict[str, Any]]:
        found = self.api.objects.get("pods", {}).values()
        return [pod for pod in found if not name or pod["metadata"]["labels"]["emugpu.dev/job"] == name]

    def held(self) -> dict[str, int]:
        """GPUs by node that pods have which aren't over."""
        found: dict[str, int] = {}
        for pod in self.pods():
            where = pod["spec"].get("nodeName")
            if where and pod["status"]["phase"] in ("Pending", "Running"):
                found[where] = found.get(where, 0) + _gpus(pod)
        return found

    # --- what the cluster does ---------------------------------------------------------------------------------------

    async def turn(self, seconds: float = 0.0) -> None:
        """Time goes on, and everybody does what is to be done then."""
        self.now_ns += round(seconds * NS)
        self.api.now_ns = self.now_ns
        before = -1
        while before != self.api._version:
            before = self.api._version
            self._controller()
            self._job_controller()
            self._pod_scheduler()
            self._kubelets()
            self._check_alone()
            await self.api.wake()

    def _check_alone(self) -> None:
        """Nothing trains twice at a time: pods of two runs of a job never live together."""
        for order in self.api.objects.get("emujobs", {}).values():
            live = [p for p in self.pods(order["metadata"]["name"]) if p["status"]["phase"] in ("Pending", "Running")]
            live = [p for p in live if p["metadata"]["labels"]["emugpu.dev/job-uid"] == order["metadata"]["uid"]]
            assert len(live) <= order["spec"].get("nodes", 1), f"{len(live)} pods of {order['metadata']['name']}"

    def _controller(self) -> None:
        """The controller of EmuJobs: status and Job."""
        for key, document in list(self.api.objects.get("emujobs", {}).items()):
            job, status = self.job(document["metadata"]["name"]), dict(document.get("status", {}))
            if status.get("phase") in ("Succeeded", "Failed"):
                continue
            new = {"submittedAt": rfc3339_micro(self.now_ns), **status, **self._progress(document, status)}
            if job is not None and job["metadata"]["ownerReferences"][0]["uid"] != document["metadata"]["uid"]:
                continue
            new["phase"] = self._phase(job, status)
            if new["phase"] == "Succeeded":
                new |= {"finishedAt": rfc3339_micro(self.now_ns), "stepsDone": _length(document["spec"])}
            if new != status:
                self.api.put(EMUJOB, {**document, "status": new})
                continue
            if job is None:
                self._make_job(key, document)
            elif document["spec"].get("suspend") and not job["spec"].get("suspend"):
                self.api.put(JOB, {**job, "spec": {**job["spec"], "suspend": True}})
        for key, job in list(self.api.objects.get("jobs", {}).items()):
            if self._is_orphan(key, job) and not self._own_pods(job):
                self.api.remove(JOB, key)

    def _phase(self, job: dict[str, Any] | None, status: Mapping[str, Any]) -> str:
        if job is None:
            return str(status.get("phase", "Pending"))
        conditions = {c["type"] for c in job.get("status", {}).get("conditions", ()) if c["status"] == "True"}
        if "Complete" in conditions:
            return "Succeeded"
        if "Failed" in conditions:
            return "Failed"
        return "Queued" if job["spec"].get("suspend") else "Running"

    def _progress(self, document: dict[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """With elastic jobs, the status knows the end of each step as it happens."""
        uid = document["metadata"]["uid"]
        if uid in self.samples:
            return {"stepsDone": self.samples[uid][1], "stepsDoneAt": rfc3339_micro(self.samples[uid][0])}
        return {"stepsDone": int(self.done.get(uid, 0.0) + 1e-9)} if uid in self.done else {}

    def _make_job(self, key: str, document: dict[str, Any]) -> None:
        spec, metadata = document["spec"], document["metadata"]
        actuator = spec["scheduler"]["actuator"]
        labels = {"emugpu.dev/job": metadata["name"], "emugpu.dev/job-uid": metadata["uid"]}
        gates = {"schedulingGates": [{"name": "emugpu.dev/scheduler"}]} if actuator == "gated" else {}
        gpus = spec.get("resources", {}).get("emuGPU", 1)
        container = {"name": "train", "resources": {"limits": {"emugpu.dev/emuGPU": str(gpus)}}}
        pod_spec = {
            **gates,
            "schedulerName": spec["scheduler"].get("schedulerName", "default-scheduler"),
            "containers": [container],
        }
        template = {
            "metadata": {"labels": labels, "annotations": {"emugpu.dev/configuration": "default"}},
            "spec": pod_spec,
        }
        self.made += 1
        self.api.put(
            JOB,
            {
                "metadata": {
                    "name": metadata["name"],
                    "namespace": "lab",
                    "uid": f"batch-{self.made}",
                    "labels": {"emugpu.dev/job": metadata["name"]},
                    "ownerReferences": [{"uid": metadata["uid"], "controller": True}],
                },
                "spec": {
                    "suspend": actuator == "jobs" or bool(spec.get("suspend")),
                    "completions": spec.get("nodes", 1),
                    "template": template,
                },
            },
        )

    def _job_controller(self) -> None:
        """Kubernetes' own: pods of Jobs that go on, none of those that are suspended."""
        for key, job in list(self.api.objects.get("jobs", {}).items()):
            orphan, own = self._is_orphan(key, job), self._own_pods(job)
            status = json.loads(json.dumps(job.get("status", {})))
            if job["spec"]["suspend"] or orphan:
                for pod in own:
                    if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in ("Pending", "Running"):
                        self._delete(pod)
            elif not any(c["type"] == "Complete" for c in status.get("conditions", ())):
                alive = [p for p in own if p["status"]["phase"] != "Failed"]
                for index in range(len(alive), job["spec"]["completions"]):
                    self._make_pod(job, index)
                own = self._own_pods(job)
            live = [p for p in own if p["status"]["phase"] in ("Pending", "Running")]
            status["active"] = sum("deletionTimestamp" not in p["metadata"] for p in live)
            status["terminating"] = len(live) - status["active"]
            suspended = {"type": "Suspended", "status": "True" if job["spec"]["suspend"] else "False"}
            conditions = [c for c in status.get("conditions", ()) if c["type"] != "Suspended"]
            status["conditions"] = [*conditions, suspended]
            if not job["spec"]["suspend"]:
                status.setdefault("startTime", rfc3339(self.now_ns))
            else:
                status.pop("startTime", None)
            done = sum(p["status"]["phase"] == "Succeeded" for p in own)
            if done == job["spec"]["completions"] and len(status["conditions"]) == 1:
                status["conditions"].append({"type": "Complete", "status": "True"})
            if status != job.get("status"):
                self.api.put(JOB, {**self.api.stored(JOB, key), "status": status})

    def _is_orphan(self, key: str, job: dict[str, Any]) -> bool:
        order = self.api.objects["emujobs"].get(key)
        return order is None or order["metadata"]["uid"] != job["metadata"]["ownerReferences"][0]["uid"]

    def _own_pods(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        uid = job["metadata"]["uid"]
        found = self.pods(job["metadata"]["name"])
        return [pod for pod in found if pod["metadata"].get("ownerReferences", [{"uid": ""}])[0]["uid"] == uid]

    def _make_pod(self, job: dict[str, Any], index: int) -> None:
        self.made += 1
        template = json.loads(json.dumps(job["spec"]["template"]))
        name = f"{job['metadata']['name']}-{index}-{self.made}"
        metadata = {
            **template["metadata"],
            "name": name,
            "namespace": "lab",
            "uid": f"pod-{self.made}",
            "creationTimestamp": rfc3339(self.now_ns),
            "ownerReferences": [{"uid": job["metadata"]["uid"], "controller": True}],
        }
        self.api.put(POD, {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}})

    def _delete(self, pod: dict[str, Any]) -> None:
        metadata = {**pod["metadata"], "deletionTimestamp": rfc3339(self.now_ns), "deletedNs": self.now_ns}
        self.api.put(POD, {**pod, "metadata": metadata})

    def _pod_scheduler(self) -> None:
        """Binds to the node that the pod's affinity or selector names, where it has the GPUs; never anywhere else."""
        for pod in self.pods():
            spec = pod["spec"]
            if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
                continue
            if spec.get("schedulerName") != "default-scheduler" or pod["status"]["phase"] != "Pending":
                continue
            for each in _allowed(spec):
                found = self.api.objects["nodes"].get(each)
                room = int(found["status"]["allocatable"]["emugpu.dev/emuGPU"]) if found else -1
                own = self.pods(pod["metadata"]["labels"]["emugpu.dev/job"])  # anti-affinity: pods of a gang are apart
                beside = {p["spec"].get("nodeName") for p in own if p["status"]["phase"] in ("Pending", "Running")}
                if self.held().get(each, 0) + _gpus(pod) <= room and each not in beside:
                    self.api.put(POD, {**pod, "spec": {**spec, "nodeName": each}})
                    break

    def _kubelets(self) -> None:
        for pod in self.pods():
            key = f"lab/{pod['metadata']['name']}"
            where, phase = pod["spec"].get("nodeName"), pod["status"]["phase"]
            uid, job_uid = pod["metadata"]["uid"], pod["metadata"]["labels"]["emugpu.dev/job-uid"]
            order = next((o for o in self.api.objects["emujobs"].values() if o["metadata"]["uid"] == job_uid), None)
            if "deletedNs" in pod["metadata"]:
                over = not where or self.now_ns >= pod["metadata"]["deletedNs"] + round(self.stop_s * NS)
                if phase == "Running" and where:
                    self._work(uid, job_uid, order, stopping=True)
                if over:
                    self.api.remove(POD, key)
            elif where and phase == "Pending":
                first = self.since.setdefault(f"bound {uid}", self.now_ns)
                if self.now_ns >= first + round(self.start_s * NS):
                    self.since[uid] = self.now_ns
                    note = pod["metadata"]["annotations"].get("emugpu.dev/allocation", "")
                    self.runs.append((pod["metadata"]["labels"]["emugpu.dev/job"], where, note))
                    self.api.put(POD, {**pod, "status": {"phase": "Running"}})
            elif phase == "Running":
                self._work(uid, job_uid, order, stopping=False)
                if order is not None and self._progress_of(job_uid) >= _length(order["spec"]):
                    self.api.put(POD, {**pod, "status": {"phase": "Succeeded"}})

    def _work(self, uid: str, job_uid: str, order: dict[str, Any] | None, *, stopping: bool) -> None:
        began = self.since.get(uid)
        if began is None or order is None:
            return
        spec = order["spec"]
        if _is_elastic(spec):
            self._train(uid, job_uid, spec, began)
            return
        step_s = float(spec.get("stepTime", "1s").removesuffix("s")) * spec.get("nodes", 1)  # each does its part
        self.done[job_uid] = self.done.get(job_uid, 0.0) + (self.now_ns - began) / NS / step_s
        self.since[uid] = self.now_ns
        if stopping:
            self.since.pop(uid)

    def _progress_of(self, job_uid: str) -> float:
        return self.samples[job_uid][1] if job_uid in self.samples else self.done.get(job_uid, 0.0)

    def _train(self, uid: str, job_uid: str, spec: Mapping[str, Any], began: int) -> None:
        """Whole steps, as `emugpu train` does them with the GPUs and the batch size of this pod."""
        (pod,) = (pod for pod in self.pods() if pod["metadata"]["uid"] == uid)
        batch_size = int(pod["metadata"]["annotations"]["emugpu.dev/batch-size"])
        gpus, total = _gpus(pod), _length(spec)
        request = TrainRequest(1, spec["model"], batch_size, samples=total)
        layout = Layout(("Tesla_V100-PCIE-32GB",) * gpus, gpus)
        step_ns = plan_step(request, layout, ProfileTable.bundled()).times(1).device_ns(0)
        done = self.samples.get(job_uid, (0, 0))[1]
        steps = min((self.now_ns - began) // step_ns, -(-(total - done) // batch_size))
        if steps:
            self.since[uid] = began + steps * step_ns
            self.samples[job_uid] = self.since[uid], min(total, done + steps * batch_size)


def _is_elastic(spec: Mapping[str, Any]) -> bool:
    return "maxEmuGPU" in spec.get("resources", {})


def _length(spec: Mapping[str, Any]) -> int:
    """In the unit of the job's progress."""
    return int(spec["steps"]) * (int(spec["batchSize"]) if _is_elastic(spec) else 1)


def _gpus(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["emugpu.dev/emuGPU"])


def _allowed(spec: Mapping[str, Any]) -> list[str]:
    host = spec.get("nodeSelector", {}).get("kubernetes.io/hostname", "")
    if host:
        return [host.removeprefix("host-")]
    affinity = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    terms = affinity.get("nodeSelectorTerms", [])
    return [value for term in terms for field in term["matchFields"] for value in field["values"]]


class Lab:
    """A scheduler program on a world: watcher, loop and handover are the product's, the threads and the clock are not.

    It is the loop's cluster: while that waits, the world turns.
    """

    name = "kubernetes"

    def __init__(
        self, world: World, policy: str = "fifo", *, scope: Scope | None = None, until_s: float = 200.0
    ) -> None:
        self.world, self.policy = world, policy
        self.said: list[str] = []
        self.complaints: list[Complaint] = []
        self.decisions: list[Decision] = []
        self.failures: list[str] = []
        self.until_ns = world.now_ns + round(until_s * NS)
        self.finished: Callable[[], bool] = lambda: False
        self._scope = scope or Scope("s", "lab")
        self._events: list[Event] = []
        self._aio = asyncio.new_event_loop()
        world.api._news = asyncio.Condition()  # that of another program belongs to its event loop
        self.truth = OpenTruth(ProfileTable.bundled())
        self.may_act = True
        try:
            self._run(self._begin())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        tasks = asyncio.all_tasks(self._aio)
        for task in tasks:
            task.cancel()
        if tasks:
            self._aio.run_until_complete(asyncio.wait(tasks))
            for task in tasks:
                _ = task.cancelled() or task.exception()
        self._aio.close()

    async def _begin(self) -> None:
        _name, policy = resolve_policy(self.policy)
        self.keeper = Keeper(self.world.api, "lab", "emugpu-scheduler-s")
        kept = await self.keeper.load(self.policy, type(policy).__module__)
        self.handover = kept or Handover(START_NS, self.policy)
        dependencies = Dependencies(
            ProfileTable.bundled(),
            ClusterCosts(),
            self.truth,
            lambda: self.world.now_ns,
            self._events.extend,
            self.said.append,
            self._complain,
            lambda: self.may_act,
            Pauses(0.0, 0.0, 0.0),
        )
        await self.world.turn()
        self.watcher = Watcher(self.world.api, self._scope, dependencies, START_NS, self.handover.attained)
        self._task = asyncio.create_task(self.watcher.run())
        await self._until_quiet()
        assert self.watcher.synced.is_set()
        self.loop = SchedulerLoop(
            self,
            ClusterSpec(()),
            policy,
            parse_estimates("oracle", self.truth, 0),
            (),
            ending=Ending(lambda _books: self.finished() or self.world.now_ns >= self.until_ns, endless=True),
            listeners=Listeners(decided=self._decided, failed=self._failed, noted=self._keep),
        )
        self.loop.state = self.handover.state

    def run(self, finished: Callable[[], bool]) -> None:
        """Until `finished`, or the time is over."""
        self.finished = finished
        try:
            self.loop.run()
        finally:
            self.close()

    def _decided(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.check()
        self._keep()

    def _keep(self) -> None:
        views = self.loop.books.views
        attained = {self.watcher.uid_of(job_id): AttainedService.of(view) for job_id, view in views.items()}
        attained = self.watcher.remember(attained)
        handover = Handover(START_NS, self.policy, self.loop.state, attained)
        self._run(self.keeper.save(handover, EncodedState.of(handover)))

    def _failed(self, error: Exception) -> bool:
        self.failures.append(str(error))
        return True

    def check(self) -> None:
        """No device has two holders in the books, and no node more pods than devices."""
        for name, view in self.loop._ledger.views().items():
            for device in view.devices:
                assert len(device.holders) <= max(1, device.replicas), (
                    f"{device.uuid} on {name} is held by {device.holders}"
                )
        for name, count in self.world.held().items():
            room = self.world.api.objects["nodes"].get(name, {"status": {"allocatable": {"emugpu.dev/emuGPU": "99"}}})
            assert count <= int(room["status"]["allocatable"]["emugpu.dev/emuGPU"]), f"{name} has {count} GPUs in use"

    # --- the loop's cluster ----------------------------------------------------------------------------------------

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.watcher.sharing, any_batch=False)

    def prepare(self, jobs: Sequence[Any]) -> None:
        pass

    def now_ns(self) -> int:
        return self.world.now_ns - START_NS

    def wait(self, until_ns: int | None) -> list[Event]:
        self._run(self._turn(until_ns))
        events, self._events[:] = list(self._events), []
        return events

    def start(self, start: Start) -> None:
        self._run(self.watcher.start(start))

    def stop(self, job_id: str, others: int = 0) -> None:
        self._run(self.watcher.stop(job_id))

    def resize(self, job_id: str, allocation: Allocation) -> None:
        self._run(self.watcher.resize(job_id, allocation))

    def steps_done(self, job_id: str) -> int:
        return self.watcher.steps_done(job_id)

    def settle(self) -> None:
        pass

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._aio.run_until_complete(work)
        finally:
            task = getattr(self, "_task", None)
            if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
                raise _first(task.exception())

    async def _turn(self, until_ns: int | None) -> None:
        end_ns = self.until_ns - START_NS if until_ns is None else min(until_ns, self.until_ns - START_NS)
        await self._until_quiet()
        while not self._events and self.now_ns() < end_ns and not self.finished():
            left_s = (end_ns - self.now_ns()) / NS
            await self.world.turn(min(0.25, left_s))
            await self._until_quiet()

    def _complain(self, complaint: Complaint) -> None:
        self.said.append(complaint.text)
        self.complaints.append(complaint)

    async def _until_quiet(self) -> None:
        """The watcher has seen all, and done what it does at once."""
        for _ in range(4):
            for _ in range(12):
                await asyncio.sleep(0)
            await self.world.turn()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@pytest.fixture
def lab() -> type[Lab]:
    return Lab


@pytest.fixture
def killed() -> type[BaseException]:
    return Killed


@pytest.fixture
def world() -> type[World]:
    return World
