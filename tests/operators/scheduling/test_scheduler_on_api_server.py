"""The scheduler on a real API server, with the rights that the chart gives it: what is written is taken, and what must not isn't.

There is no Job controller here and no kubelet: what they do is written by the tests.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.node.allocation import Allocation
from operators.jobs.manifests import Images, job_document
from operators.kube.api import EMUJOB, JOB, POD, ConflictError, Resource
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import from_document
from operators.kube.store import Store
from operators.objects.emujob import EmuJob, parse_spec
from operators.objects.job import BatchJob
from operators.objects.pod import Pod
from operators.scheduling.act.actuators import ACTUATORS
from operators.scheduling.act.writer import StartRequest, Writer
from operators.scheduling.remember.handover import EncodedState, Handover
from operators.scheduling.remember.keeper import Keeper
from operators.scheduling.see.job_objects import JobObjects
from operators.scheduling.see.job_state import State
from tests.support.api_server import ApiServer
from tests.support.controllers import until

EMUJOBS = "/apis/emugpu.dev/v1alpha1/namespaces/default/emujobs"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/emugpu-scheduler-s"
MERGE = "application/merge-patch+json"
STARTED = "2026-01-01T00:00:00Z"


class Kube:
    """What others do: the EmuJobs' controller, the Job controller."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        status, reply = self.server.request(method, path, body, **more)
        assert status in (200, 201), (method, path, reply)
        return reply

    def get(self, path: str) -> Any:
        return self.server.request("GET", path)[1]

    def submit(self, name: str, actuator: str, **spec: Any) -> Any:
        """An EmuJob with its status and its Job, as the controller makes them."""
        scheduler = {"actuator": actuator, "name": "s"} | ({"schedulerName": "s"} if actuator == "binding" else {})
        work = {} if {"configurations", "model"} & spec.keys() else {"stepTime": "100ms", "memory": "1Gi"}
        document = {
            "apiVersion": "emugpu.dev/v1alpha1",
            "kind": "EmuJob",
            "metadata": {"name": name},
            "spec": {"steps": 100, **work, "scheduler": scheduler, **spec},
        }
        made = self.ask("POST", EMUJOBS, document)
        self.status("emujobs", name, {"phase": "Queued", "submittedAt": "2026-01-01T00:00:00.000001Z"})
        facts = EmuJob.read(made)
        parsed = parse_spec("default", name, facts.spec)
        self.ask("POST", JOBS, job_document(facts, parsed, Images("emugpu:1"), parsed.configurations[0], ()))
        return made

    def status(self, kind: str, name: str, status: dict[str, Any]) -> None:
        path = f"{EMUJOBS if kind == 'emujobs' else JOBS}/{name}/status"
        self.ask("PATCH", path, {"status": status}, content_type=MERGE)

    def begun(self, name: str) -> None:
        """The Job controller has seen that the Job goes on."""
        self.status("jobs", name, {"startTime": STARTED, "conditions": [self._suspended("False")]})

    def stopped(self, name: str) -> None:
        self.status("jobs", name, {"startTime": None, "conditions": [self._suspended("True")]})

    def _suspended(self, status: str) -> dict[str, str]:
        return {
            "type": "Suspended",
            "status": status,
            "lastProbeTime": STARTED,
            "lastTransitionTime": STARTED,
            "reason": "JobSuspended",
            "message": "",
        }

    def pod(self, name: str, index: int = 0) -> Any:
        """A pod of the Job, as the Job controller makes it from the template."""
        job = self.get(f"{JOBS}/{name}")
        template = job["spec"]["template"]
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        labels = {k: v for k, v in template["metadata"]["labels"].items() if "batch" not in k and "controller" not in k}
        metadata = {
            "name": f"{name}-{index}",
            "labels": labels,
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner],
        }
        return self.ask(
            "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )


@pytest.fixture
def kube(cluster: ApiServer) -> Iterator[Kube]:
    """Two nodes with four devices each; afterwards nothing is left."""
    kube = Kube(cluster)
    spec = {"gpus": [{"type": "V100", "count": 4}], "emulated": {"cpu": 24, "memory": "100Gi"}}
    pool = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuGPUPool", "metadata": {"name": "sched"}, "spec": spec}
    kube.ask("POST", "/apis/emugpu.dev/v1alpha1/emugpupools", pool)
    for name in ("gpu1", "gpu2"):
        labels = {"kubernetes.io/hostname": f"host-{name}"}
        kube.ask(
            "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )
        amounts = {"cpu": "8", "memory": "16Gi", "emugpu.dev/emuGPU": "4", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": STARTED, "lastTransitionTime": STARTED}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        kube.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE)
    yield kube
    cluster.request("DELETE", "/apis/emugpu.dev/v1alpha1/emugpupools/sched")
    for name in ("gpu1", "gpu2"):
        cluster.request("DELETE", f"/api/v1/nodes/{name}")
    for path in (EMUJOBS, JOBS, PODS):
        for found in cluster.request("GET", path)[1]["items"]:
            own = f"{path}/{found['metadata']['name']}"
            cluster.request("DELETE", f"{own}?propagationPolicy=Background&gracePeriodSeconds=0")
            cluster.request("PATCH", own, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for path in (LEASE, "/api/v1/namespaces/default/configmaps/emugpu-scheduler-s"):
        cluster.request("DELETE", path)


def with_writer(server: ApiServer, story: Callable[[KubeApi, Writer], Awaitable[None]]) -> None:
    """Under the scheduler's own account."""

    async def play() -> None:
        api = KubeApi(from_document(server.kubeconfig("emugpu-scheduler")))
        stores: dict[Resource, Store[Any]] = {
            EMUJOB: Store(EmuJob.read),
            JOB: Store(BatchJob.read),
            POD: Store(Pod.read),
        }
        try:
            await story(api, Writer(api, stores, lambda: True, lambda: None))
        finally:
            await api.close()

    asyncio.run(play())


def wanted(*nodes: str, configuration: str = "default", gpus: int = 1) -> StartRequest:
    return StartRequest(
        Allocation(configuration, nodes, 2000, 2**30, ("EMU-1",)), gpus, {node: f"host-{node}" for node in nodes}
    )


async def objects_of(api: KubeApi, name: str) -> JobObjects:
    emujob = EmuJob.read(await api.get(EMUJOB, name, "default"))
    job = BatchJob.read(await api.get(JOB, name, "default"))
    pods = [Pod.read(document) for document in (await api.list(POD, namespace="default"))[1]]
    return JobObjects(emujob, job, tuple(pod for pod in pods if pod.emujob_uid == emujob.key.uid))


def test_a_job_is_resumed_and_suspended_and_resumed_elsewhere(kube: Kube) -> None:
    """The second time with another configuration, which has no GPU."""
    cpu = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 4}, "profile": {"stepTime": "3s"}}
    gpu = {"name": "gpu", "resources": {"emuGPU": 2}, "profile": {"stepTime": "1s", "memory": "1Gi"}}
    kube.submit("j", "jobs", configurations=[gpu, cpu])
    jobs = ACTUATORS["jobs"]

    async def story(api: KubeApi, writer: Writer) -> None:
        mine = await objects_of(api, "j")
        assert jobs.read_state(mine) is State.IDLE
        await jobs.start(writer, mine, wanted("gpu1", configuration="gpu", gpus=2))
        spec = kube.get(f"{JOBS}/j")["spec"]
        assert spec["suspend"] is False
        (container,) = spec["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"emugpu.dev/emuGPU": "2", "emugpu.dev/host": "1"}
        with pytest.raises(ConflictError):  # what was seen before is old
            await jobs.start(writer, mine, wanted("gpu2", configuration="gpu", gpus=2))
        kube.begun("j")
        seen = await objects_of(api, "j")
        assert jobs.read_state(seen) is State.PLACED
        await jobs.stop(writer, seen)
        assert jobs.read_state(await objects_of(api, "j")) is State.LEAVING
        kube.stopped("j")
        idle = await objects_of(api, "j")
        assert jobs.read_state(idle) is State.IDLE
        await jobs.start(writer, idle, wanted("gpu2", configuration="cpu", gpus=0))
        template = kube.get(f"{JOBS}/j")["spec"]["template"]
        assert template["metadata"]["annotations"]["emugpu.dev/configuration"] == "cpu"
        assert template["spec"]["containers"][0]["resources"]["limits"] == {"emugpu.dev/host": "1"}
        required = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        names = {"key": "metadata.name", "operator": "In", "values": ["gpu2"]}
        assert required == {"nodeSelectorTerms": [{"matchFields": [names]}]}

    with_writer(kube.server, story)


def test_an_elastic_job_is_resumed_with_more_gpus_and_then_with_fewer(kube: Kube) -> None:
    """The API server lets a suspended Job that has run already have other limits."""
    resources = {"emuGPU": 2, "minEmuGPU": 1, "maxEmuGPU": 4}
    kube.submit("j", "jobs", model="resnet50", batchSize=256, resources=resources)
    jobs = ACTUATORS["jobs"]

    async def story(api: KubeApi, writer: Writer) -> None:
        for gpus, batch_size in ((4, 256), (1, 64), (2, 512)):
            idle = await objects_of(api, "j")
            assert jobs.read_state(idle) is State.IDLE
            await jobs.start(writer, idle, replace(wanted("gpu1", gpus=gpus), batch_size=batch_size))
            template = kube.get(f"{JOBS}/j")["spec"]["template"]
            assert template["spec"]["containers"][0]["resources"]["limits"] == {"emugpu.dev/emuGPU": str(gpus)}
            assert template["metadata"]["annotations"]["emugpu.dev/batch-size"] == str(batch_size)
            kube.begun("j")
            await jobs.stop(writer, await objects_of(api, "j"))
            kube.stopped("j")

    with_writer(kube.server, story)


def test_a_gang_is_resumed_on_its_nodes(kube: Kube) -> None:
    """Pods of one job keep apart as they were made to; one patch is all of them or none."""
    kube.submit("j", "jobs", nodes=2)

    async def story(api: KubeApi, writer: Writer) -> None:
        await ACTUATORS["jobs"].start(writer, await objects_of(api, "j"), wanted("gpu1", "gpu2"))
        affinity = kube.get(f"{JOBS}/j")["spec"]["template"]["spec"]["affinity"]
        terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [term["matchFields"][0]["values"] for term in terms] == [["gpu1"], ["gpu2"]]
        assert "podAntiAffinity" in affinity

    with_writer(kube.server, story)


def test_gates_are_opened_and_other_peoples_stay(kube: Kube) -> None:
    kube.submit("j", "gated", nodes=2)
    first, second = (kube.pod("j", index) for index in range(2))
    gates = [*first["spec"]["schedulingGates"], {"name": "example.com/other"}]
    kube.server.request("DELETE", f"{PODS}/j-0?gracePeriodSeconds=0")
    first = {key: first[key] for key in ("apiVersion", "kind", "spec")} | {
        "metadata": {key: first["metadata"][key] for key in ("name", "labels", "annotations", "ownerReferences")}
    }
    first["spec"]["schedulingGates"] = gates
    kube.ask("POST", PODS, first)
    gated = ACTUATORS["gated"]

    async def story(api: KubeApi, writer: Writer) -> None:
        mine = await objects_of(api, "j")
        assert gated.read_state(mine) is State.IDLE
        await gated.start(writer, mine, wanted("gpu1", "gpu2"))
        pods = [kube.get(f"{PODS}/j-{index}") for index in range(2)]
        assert [pod["spec"].get("schedulingGates") for pod in pods] == [[{"name": "example.com/other"}], None]
        hosts = [pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in pods]
        assert hosts == ["host-gpu1", "host-gpu2"]
        notes = [pod["metadata"]["annotations"]["emugpu.dev/allocation"] for pod in pods]
        assert all(json.loads(note)["devices"] == ["EMU-1"] for note in notes)
        placed = await objects_of(api, "j")
        assert gated.read_state(placed) is State.PLACED
        await gated.stop(writer, placed)
        assert kube.get(PODS)["items"] == []

    with_writer(kube.server, story)
    assert second["metadata"]["name"] == "j-1"


def test_pods_are_bound_once(kube: Kube) -> None:
    kube.submit("j", "binding")
    kube.pod("j")
    binding = ACTUATORS["binding"]

    async def story(api: KubeApi, writer: Writer) -> None:
        mine = await objects_of(api, "j")
        assert binding.read_state(mine) is State.IDLE
        await binding.start(writer, mine, wanted("gpu2"))
        assert kube.get(f"{PODS}/j-0")["spec"]["nodeName"] == "gpu2"
        with pytest.raises(ConflictError):
            await binding.start(writer, mine, wanted("gpu1"))
        bound = await objects_of(api, "j")
        assert binding.read_state(bound) is State.PLACED
        await binding.stop(writer, bound)
        found = kube.server.request("GET", f"{PODS}/j-0")[1]
        assert "deletionTimestamp" in found["metadata"]

    with_writer(kube.server, story)


def test_a_binding_names_the_pod_that_is_meant(kube: Kube) -> None:
    kube.submit("j", "binding")
    kube.pod("j")

    async def story(api: KubeApi, writer: Writer) -> None:
        (pod,) = (await objects_of(api, "j")).pods
        with pytest.raises(ConflictError):
            await api.bind("j-0", "default", "another", "gpu1")
        assert not kube.get(f"{PODS}/j-0")["spec"].get("nodeName")
        await api.bind("j-0", "default", pod.key.uid, "gpu1")

    with_writer(kube.server, story)


def test_what_it_remembers_is_kept_in_the_cluster(kube: Kube) -> None:
    async def story(api: KubeApi, _writer: Writer) -> None:
        keeper = Keeper(api, "default", "emugpu-scheduler-s")
        for number in range(2):
            handover = Handover(5, "fifo", {"number": number})
            assert await keeper.save(handover, EncodedState.of(handover)) == ""
        found = await Keeper(api, "default", "emugpu-scheduler-s").load("fifo", "")
        assert found == Handover(5, "fifo", {"number": 1})

    with_writer(kube.server, story)


# -- the program -------------------------------------------------------------------------------------------------------


def start(config: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-m", "emugpu", "scheduler", "--policy", "srtf", "--name", "s"]
    where = ["--kubeconfig", str(config), "--namespace", "default", "--json", *more]
    return subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def config(kube: Kube, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kube.server.kubeconfig("emugpu-scheduler")), encoding="utf-8")
    return path


def test_a_killed_program_is_followed_by_one_that_goes_on_at_once(kube: Kube, config: Path) -> None:
    kube.submit("one", "jobs", resources={"emuGPU": 4})
    kube.submit("two", "jobs", resources={"emuGPU": 4})
    kube.submit("three", "jobs", resources={"emuGPU": 4}, steps=1000)
    with start(config, "--identity", "supervised") as first:
        try:
            asyncio.run(until(lambda: going(kube) == {"one", "two"}))
            asyncio.run(until(lambda: all(predicted(kube, name) for name in ("one", "two", "three"))))
        finally:
            first.kill()
    for name in ("one", "two"):
        kube.begun(name)
    kube.status("jobs", "one", done(kube, "one"))
    with start(config, "--identity", "supervised") as second:
        try:
            asyncio.run(until(lambda: "three" in going(kube)))
            second.send_signal(signal.SIGTERM)
            out, err = second.communicate(timeout=10)
        finally:
            second.kill()
    assert second.returncode == 0, err
    where = "in namespace default; its lease is default/emugpu-scheduler-s"
    assert err == f"scheduler: srtf schedules EmuJobs of scheduler s {where}\n"
    ready, *decisions = [json.loads(line) for line in out.splitlines()]
    assert (ready["scheduler"], ready["policy"], ready["namespace"]) == ("s", "srtf", "default")
    assert [list(decision["started"]) for decision in decisions if decision["started"]] == [["three"]]
    assert kube.get(LEASE)["spec"].get("holderIdentity", "") == ""
    assert going(kube) == {"one", "two", "three"}  # what runs goes on


HANGS = """
class Hangs:
    def plan(self, view):
        print("hangs", flush=True)
        while True:
            pass
"""


GREEDY = """
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement

class Greedy:
    needs_estimates = False

    def plan(self, view):
        node = next(iter(view.nodes.values()))
        share = DeviceShare(None, node.devices[0].gpu_type, memory_bytes=2**30)
        task = TaskPlacement(node.name, (share,), node.cpu_milli + 1000, 2**30)
        return Plan.full({job_id: Allocation("default", (task,)) for job_id in view.jobs})
"""


def test_a_plan_that_asks_for_more_than_a_node_has_is_printed_once_and_written_on_the_emujob(
    kube: Kube, config: Path, tmp_path: Path
) -> None:
    """It used to be repeated in the scheduler's log after each decision, and to be told to nobody else."""
    (tmp_path / "own.py").write_text(GREEDY)
    kube.submit("j", "jobs")
    with start(config, "--policy", f"{tmp_path}/own.py:Greedy", "--no-predictions") as process:
        try:
            asyncio.run(until(lambda: "emugpu.dev/scheduling-problem" in annotations(kube, "j")))
            for name in ("k", "l"):  # each submission is a decision, and fails again
                kube.submit(name, "jobs")
            asyncio.run(asyncio.sleep(1.0))
        finally:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
    complaints = [line for line in map(json.loads, out.splitlines()) if "complaint" in line]
    assert {(line["kind"], line["job"], line["retry"], line["count"]) for line in complaints} <= {
        ("plan-refused", name, False, 1) for name in "jkl"
    }
    assert sum(line["job"] == "j" for line in complaints) == 1
    problem = json.loads(annotations(kube, "j")["emugpu.dev/scheduling-problem"])
    assert problem["reason"] == "PlanRefused" and problem["message"] == complaints[0]["complaint"]
    assert "where it does not fit beside the rest: it needs " in problem["message"]
    assert err.count("the plan places job 'j' on") == 1


def test_while_a_policy_hangs_the_first_signal_says_so_and_the_second_ends_it(
    kube: Kube, config: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(HANGS)
    kube.submit("j", "jobs")
    with start(config, "--policy", f"{tmp_path}/own.py:Hangs", "--no-predictions") as process:
        try:
            assert process.stderr is not None
            while "hangs" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            said = process.stderr.readline()
            assert said == "scheduler: ending after the policy's answer; a second Ctrl-C or SIGTERM ends at once\n"
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=10)[1] == "emugpu: interrupted\n"
        finally:
            process.kill()
    assert process.returncode == 130


def test_of_two_programs_one_acts(kube: Kube, config: Path) -> None:
    with start(config, "--identity", "first") as first, start(config, "--identity", "second") as second:
        try:
            asyncio.run(until(lambda: kube.get(LEASE).get("spec", {}).get("holderIdentity")))
            holder = kube.get(LEASE)["spec"]["holderIdentity"]
            acts, waits = (first, second) if holder == "first" else (second, first)
            kube.submit("j", "jobs")
            asyncio.run(until(lambda: going(kube) == {"j"}))
            assert waits.stderr is not None
            assert f"emugpu-scheduler-s: is held by {holder}; waiting" in waits.stderr.readline()
            waits.send_signal(signal.SIGTERM)  # one that waits for its turn can be ended as well
            assert waits.wait(10) == 0
            waits_said = waits.communicate()[0]
            kube.ask("PATCH", LEASE, {"spec": {"holderIdentity": "somebody"}}, content_type=MERGE)
            assert acts.wait(20) == 1
            assert "is held by somebody now; ending" in acts.communicate()[1]
            assert waits_said == ""
        finally:
            first.kill()
            second.kill()


def test_one_with_nothing_to_decide_says_that_it_is_ready(kube: Kube, config: Path) -> None:
    """Experiments begin with that line: their jobs come after it."""
    with start(config) as program:
        try:
            assert program.stdout is not None
            assert json.loads(program.stdout.readline())["scheduler"] == "s"
        finally:
            program.kill()


def test_it_ends_when_all_that_it_waits_for_is_done(kube: Kube, config: Path) -> None:
    with start(config, "--until-done", "emugpu.dev/experiment=e", "--jobs", "1") as program:
        try:
            kube.submit("other", "jobs")
            kube.submit("mine", "jobs")
            kube.ask(
                "PATCH", f"{EMUJOBS}/mine", {"metadata": {"labels": {"emugpu.dev/experiment": "e"}}}, content_type=MERGE
            )
            asyncio.run(until(lambda: going(kube) == {"mine", "other"}))
            kube.status("emujobs", "other", {"phase": "Succeeded"})
            kube.status("emujobs", "mine", {"phase": "Succeeded"})
            assert program.wait(20) == 0
        finally:
            program.kill()


@pytest.mark.parametrize(
    ("account", "message"),
    [
        (
            "emugpu-nobody",
            'emugpu: list emujobs: emujobs.emugpu.dev is forbidden: User "system:serviceaccount:emugpu:emugpu-nobody"',
        ),
        ("emugpu-jobs", "the chart's RBAC gives this right"),
    ],
)
def test_rights_that_are_missing_are_named(kube: Kube, tmp_path: Path, account: str, message: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kube.server.kubeconfig(account)), encoding="utf-8")
    with start(path) as program:
        try:
            assert program.wait(60) == 2
            assert message in program.communicate()[1]
        finally:
            program.kill()


def going(kube: Kube) -> set[str]:
    return {job["metadata"]["name"] for job in kube.get(JOBS)["items"] if not job["spec"]["suspend"]}


def predicted(kube: Kube, name: str) -> bool:
    text = kube.get(f"{EMUJOBS}/{name}")["metadata"].get("annotations", {}).get("emugpu.dev/predicted", "{}")
    found = json.loads(text)
    return bool(found) and found["by"] == "srtf" and found["seconds"] >= 10


def annotations(kube: Kube, name: str) -> dict[str, str]:
    found: dict[str, str] = kube.get(f"{EMUJOBS}/{name}")["metadata"].get("annotations", {})
    return found


def done(kube: Kube, name: str) -> dict[str, Any]:
    """The status of a Job that the Job controller has seen to its end."""
    kinds = ("SuccessCriteriaMet", "Complete")
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": STARTED, "lastTransitionTime": STARTED} for kind in kinds
    ]
    return {"succeeded": 1, "completedIndexes": "0", "completionTime": STARTED, "conditions": conditions, "ready": 0}


def test_the_program_places_gangs_where_its_policy_can(kube: Kube, config: Path) -> None:
    kube.submit("gang", "jobs", nodes=2, resources={"emuGPU": 4})
    kube.submit("one", "jobs")
    with start(config, "--policy", "allox") as for_one:
        try:
            asyncio.run(until(lambda: going(kube) == {"one"}))
            asyncio.run(until(lambda: "emugpu.dev/scheduling-problem" in annotations(kube, "gang")))
        finally:
            for_one.send_signal(signal.SIGTERM)
        _, said = for_one.communicate(timeout=10)
    assert "job 'gang' has 2 pods; this policy places jobs of one pod only" in said
    assert json.loads(annotations(kube, "gang")["emugpu.dev/scheduling-problem"])["reason"] == "Unsupported"
    kube.begun("one")
    kube.status("jobs", "one", done(kube, "one"))
    with start(config, "--policy", "fifo") as for_gangs:
        try:
            asyncio.run(until(lambda: "gang" in going(kube)))
            asyncio.run(until(lambda: "emugpu.dev/scheduling-problem" not in annotations(kube, "gang")))
        finally:
            for_gangs.send_signal(signal.SIGTERM)
        for_gangs.communicate(timeout=10)
    template = kube.get(f"{JOBS}/gang")["spec"]["template"]
    assert '"nodes":["gpu1","gpu2"]' in template["metadata"]["annotations"]["emugpu.dev/allocation"]
