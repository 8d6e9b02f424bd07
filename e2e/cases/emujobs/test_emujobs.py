"""The life of an EmuJob on a real cluster, with Kubernetes' own Job controller: submission, runs, preemption, failures, end."""

from __future__ import annotations

import itertools
import json
import time
from datetime import datetime
from typing import Any

import pytest

from e2e.cases.kube import SYSTEM, Kubectl, Node, Object, eventually
from e2e.cases.ledger import Ledger, check_every_step_once


def emujob(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": name},
        "spec": {"steps": 100, "stepTime": "50ms", "memory": "1Gi", **spec},
    }


def status(kubectl: Kubectl, name: str) -> Object:
    found: Object = kubectl.get("emujob", name).get("status", {})
    return found


def wait_phase(kubectl: Kubectl, name: str, *phases: str, within_s: float = 120.0) -> Object:
    def seen() -> Object | None:
        found = status(kubectl, name)
        return found if found.get("phase") in phases else None

    try:
        found: Object = eventually(f"{name} {phases}", seen, within_s=within_s)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{status(kubectl, name)}\n{kubectl('get', 'jobs,pods', '-o', 'wide')}") from None
    return found


def pods_of(kubectl: Kubectl, name: str) -> list[Object]:
    return kubectl.list("pods", "-l", f"emugpu.dev/job={name}")


def allocation(node: str, configuration: str = "default", cpu_milli: int = 1000) -> str:
    return json.dumps({"configuration": configuration, "nodes": [node], "cpu_milli": cpu_milli})


def allocate(kubectl: Kubectl, name: str, node: str, configuration: str = "default", gpus: int = 1) -> None:
    """The patch with which a job-level scheduler (actuator `jobs`) starts a job.

    A limit that isn't needed is removed (null), because a kubelet without healthy devices rejects a pod with a limit of 0.
    """
    notes = {
        "emugpu.dev/configuration": configuration,
        "emugpu.dev/allocation": allocation(node, configuration),
    }
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    container = {"name": "train", "resources": {"limits": {"emugpu.dev/emuGPU": str(gpus) if gpus else None}}}
    template = {"metadata": {"annotations": notes}, "spec": {"affinity": affinity, "containers": [container]}}
    patch = {"spec": {"suspend": False, "template": template}}
    kubectl("patch", "job", name, "--type=strategic", "-p", json.dumps(patch))


def suspend(kubectl: Kubectl, name: str) -> None:
    kubectl("patch", "job", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))


def gone(kubectl: Kubectl, name: str) -> bool:
    return not pods_of(kubectl, name) and not kubectl.get("job", name)["status"].get("active")


def test_a_job_from_submission_to_its_end(kubectl: Kubectl, ledger: Ledger) -> None:
    kubectl.apply(emujob("plain"))
    wait_phase(kubectl, "plain", "Running")
    done = wait_phase(kubectl, "plain", "Succeeded", within_s=90)
    assert (done["progress"], done["failures"], done["preemptions"]) == ("100/100", 0, 0)
    assert 5 <= done["observedJCTSeconds"] < 60  # set as soon as the phase is Succeeded
    assert done["node"]
    uid = kubectl.get("emujob", "plain")["metadata"]["uid"]
    events = eventually("all steps are reported", lambda: finished(ledger, uid))
    check_every_step_once(events, 100)
    assert {"Running", "Complete"} <= {event["reason"] for event in kubectl.events_of("EmuJob", "plain")}
    assert "100/100" in kubectl("get", "ej", "plain")


def finished(ledger: Ledger, uid: str) -> Any:
    events = ledger.of(uid)
    return events if any(event.kind == "finished" for event in events) else None


def test_a_scheduler_moves_a_job_between_nodes(kubectl: Kubectl, ledger: Ledger, workers: list[Node]) -> None:
    """Preempted twice, once moved to another node: no step is lost or repeated, and preemptions don't count as failures."""
    first, second = workers[0].name, workers[1].name
    kubectl.apply(emujob("moved", steps=600, scheduler={"actuator": "jobs", "name": "case"}))
    wait_phase(kubectl, "moved", "Queued")
    time.sleep(2)
    assert pods_of(kubectl, "moved") == []  # only its scheduler can start it
    for node in (first, second, first):
        allocate(kubectl, "moved", node)
        running = wait_phase(kubectl, "moved", "Running")
        assert running["node"] == node
        time.sleep(2.5)
        suspend(kubectl, "moved")
        wait_phase(kubectl, "moved", "Preempted")
        eventually("its pods are gone", lambda: gone(kubectl, "moved"))
    allocate(kubectl, "moved", second)
    done = wait_phase(kubectl, "moved", "Succeeded", within_s=90)
    assert (done["preemptions"], done["failures"], done["rejections"]) == (3, 0, 0)
    uid = kubectl.get("emujob", "moved")["metadata"]["uid"]
    check_every_step_once(eventually("all steps are reported", lambda: finished(ledger, uid)), 600)


def test_one_of_several_configurations_is_chosen_at_the_start(kubectl: Kubectl, workers: list[Node]) -> None:
    slow = {"name": "slow", "profile": {"stepTime": "500ms", "memory": "1Gi"}}
    quick = {"name": "quick", "resources": {"emuGPU": 2}, "profile": {"stepTime": "20ms", "memory": "1Gi"}}
    scheduler = {"actuator": "jobs", "name": "case"}
    job = emujob("either", configurations=[slow, quick], scheduler=scheduler)
    job["spec"] = {name: value for name, value in job["spec"].items() if name not in ("stepTime", "memory")}
    kubectl.apply(job)
    wait_phase(kubectl, "either", "Queued")
    allocate(kubectl, "either", workers[0].name, "quick", gpus=2)
    done = wait_phase(kubectl, "either", "Succeeded", within_s=40)
    assert (done["allocation"]["configuration"], done["gpus"]) == ("quick", 2)


def test_a_job_changes_between_cpus_and_a_gpu(kubectl: Kubectl, ledger: Ledger, workers: list[Node]) -> None:
    """Preempted twice: runs without a GPU, on a GPU of another node, without a GPU again. Each step is done once; no failures."""
    cpu = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 4}, "profile": {"stepTime": "50ms"}}
    gpu = {"name": "gpu", "resources": {"cpu": 1}, "profile": {"stepTime": "20ms", "memory": "1Gi"}}
    job = emujob("either-way", steps=600, configurations=[gpu, cpu], scheduler={"actuator": "jobs", "name": "case"})
    job["spec"] = {name: value for name, value in job["spec"].items() if name not in ("stepTime", "memory")}
    kubectl.apply(job)
    wait_phase(kubectl, "either-way", "Queued")
    first, second = workers[0].name, workers[1].name
    runs = ((first, "cpu", 0), (second, "gpu", 1), (first, "cpu", 0))
    for number, (node, configuration, gpus) in enumerate(runs):
        allocate(kubectl, "either-way", node, configuration, gpus=gpus)
        running = wait_phase(kubectl, "either-way", "Running")
        assert (running["node"], running["gpus"]) == (node, gpus)
        (pod,) = [pod for pod in pods_of(kubectl, "either-way") if pod["status"]["phase"] == "Running"]
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits == {"emugpu.dev/host": "1"} | ({"emugpu.dev/emuGPU": "1"} if gpus else {})
        if number < 2:
            time.sleep(0.7)
            suspend(kubectl, "either-way")
            wait_phase(kubectl, "either-way", "Preempted")
            eventually("its pods are gone", lambda: gone(kubectl, "either-way"))
    done = wait_phase(kubectl, "either-way", "Succeeded", within_s=90)
    assert (done["preemptions"], done["failures"], done["rejections"]) == (2, 0, 0)
    uid = kubectl.get("emujob", "either-way")["metadata"]["uid"]
    events = eventually("all steps are reported", lambda: finished(ledger, uid))
    check_every_step_once(events, 600)
    attached = [(event.node, bool(event.detail)) for event in events if event.kind == "attached"]
    assert sorted(attached) == sorted([(first, False), (second, True), (first, False)])  # a host slot is no device


def pace(events: Any, first: int, last: int) -> float:
    """The mean step time (seconds), by the manager's times of these events."""
    reports = sorted((event.steps_done, event.at_ns) for event in events if first <= event.steps_done <= last)
    (step, at_ns), (later, later_ns) = reports[0], reports[-1]
    assert later > step, reports
    return float((later_ns - at_ns) / 1e9 / (later - step))


def test_a_job_that_is_given_more_goes_faster_from_the_next_step_on(
    kubectl: Kubectl, ledger: Ledger, workers: list[Node]
) -> None:
    """A running job gets four times the CPUs: the same pod continues, and its steps take a quarter of the time."""
    node = workers[0].name
    sensitivity = {"cpu": [{"amount": 1, "speed": 1}, {"amount": 4, "speed": 4}]}
    scheduler = {"actuator": "jobs", "name": "case"}
    job = emujob("hungry", steps=100, stepTime="200ms", resources={"cpu": 1}, sensitivity=sensitivity)
    job["spec"]["scheduler"] = scheduler
    kubectl.apply(job)
    wait_phase(kubectl, "hungry", "Queued")
    allocate(kubectl, "hungry", node)
    wait_phase(kubectl, "hungry", "Running")
    (before,) = pods_of(kubectl, "hungry")
    time.sleep(4)
    more = f"emugpu.dev/allocation={allocation(node, cpu_milli=4000)}"
    kubectl("annotate", "pods", "-l", "emugpu.dev/job=hungry", "--overwrite", more)
    done = wait_phase(kubectl, "hungry", "Succeeded", within_s=40)
    (after,) = pods_of(kubectl, "hungry")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    said = kubectl.logs(after["metadata"]["name"])
    (line,) = [line for line in said.splitlines() if line.startswith("from step ")]
    assert line.endswith("on with 4 CPUs: 50.00 ms a step"), said
    turn = int(line.split()[2])
    assert 10 <= turn <= 60
    uid = kubectl.get("emujob", "hungry")["metadata"]["uid"]
    events = eventually("all steps are reported", lambda: finished(ledger, uid))
    check_every_step_once(events, 100)
    assert abs(pace(events, 1, turn) / 0.2 - 1) < 0.15
    assert abs(pace(events, turn + 1, 100) / 0.05 - 1) < 0.15
    assert done["observedJCTSeconds"] < 100 * 0.2


def test_what_a_pod_really_asks_for_follows_its_share(kubectl: Kubectl, workers: list[Node]) -> None:
    """Resized in place, without a restart. A size that no node has is refused with a message and changes nothing."""
    node, name = workers[0].name, "stretched"
    native = {"native": {"follow": {"cpu": "50m", "memory": "0.01"}}, "resources": {"cpu": 1, "memory": "8Gi"}}
    kubectl.apply(emujob(name, steps=4000, scheduler={"actuator": "jobs", "name": "case"}, **native))
    wait_phase(kubectl, name, "Queued")
    allocate(kubectl, name, node)
    wait_phase(kubectl, name, "Running")
    (before,) = pods_of(kubectl, name)

    def has(cpu: str, reason: str) -> bool:
        """The requests of the container, and the EmuJob's status about its size."""
        (pod,) = pods_of(kubectl, name)
        asked = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        conditions = status(kubectl, name)["conditions"]
        return bool((asked, [c["reason"] for c in conditions if c["type"] == "Resized"]) == (cpu, [reason]))

    def divide(cpu_milli: int) -> None:
        note = f"emugpu.dev/allocation={allocation(node, cpu_milli=cpu_milli)}"
        kubectl("annotate", "pods", "-l", f"emugpu.dev/job={name}", "--overwrite", note)

    eventually("as it was made", lambda: has("50m", "AsAllocated"))
    divide(4000)
    eventually("more", lambda: has("200m", "AsAllocated"))
    (pod,) = pods_of(kubectl, name)
    assert pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"] == "200m"
    assert status(kubectl, name)["allocation"]["cpu"] == "4000m"
    divide(10_000_000)  # that is, 500 real CPUs
    eventually("too much", lambda: has("200m", "Refused") or has("500", "Infeasible"))
    divide(2000)
    eventually("less", lambda: has("100m", "AsAllocated"))
    (after,) = pods_of(kubectl, name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert {"ResizeRefused", "ResizeInfeasible"} & {e["reason"] for e in kubectl.events_of("EmuJob", name)}
    kubectl("delete", "emujob", name)


def test_two_pods_train_together(kubectl: Kubectl) -> None:
    kubectl.apply(emujob("both", nodes=2))
    wait_phase(kubectl, "both", "Running")
    nodes = {pod["spec"]["nodeName"] for pod in pods_of(kubectl, "both")}
    assert len(nodes) == 2
    wait_phase(kubectl, "both", "Succeeded", within_s=90)
    kubectl("delete", "emujob", "both")
    eventually("the Job and the Service go with it", lambda: not kubectl.exists("service", "both"))


def test_a_hold_is_kept_and_ended(kubectl: Kubectl) -> None:
    kubectl.apply(emujob("held", steps=100))
    wait_phase(kubectl, "held", "Running")
    kubectl("patch", "emujob", "held", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    eventually("its pods are gone", lambda: gone(kubectl, "held"))
    assert status(kubectl, "held")["phase"] == "Preempted"
    kubectl("patch", "emujob", "held", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    done = wait_phase(kubectl, "held", "Succeeded", within_s=90)
    assert done["failures"] == 0


def test_what_is_wrong_is_refused_at_once(kubectl: Kubectl) -> None:
    """Only schema errors are refused; test_story.py covers EmuJobs that no node can run."""
    assert "spec.stepTime in body should match" in kubectl.refusal(emujob("wrong", stepTime="soon"))


def bind(kubectl: Kubectl, pod: str, node: str) -> None:
    """Bind a pod as a scheduler with the actuator `binding` does; only the kubelet checks whether it fits."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/binding"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def waiting_pod(kubectl: Kubectl, name: str) -> str:
    """The name of a pod of the job that is bound to no node; empty if there is none."""
    found = [pod for pod in pods_of(kubectl, name) if pod["status"]["phase"] == "Pending"]
    return str(found[0]["metadata"]["name"]) if found and not found[0]["spec"].get("nodeName") else ""


def bind_until_it_runs(kubectl: Kubectl, name: str, workers: list[Node]) -> None:
    """Bind each unbound pod to the next node in turn, because another pod may hold a node's devices at the moment."""
    nodes = itertools.cycle(workers)

    def running() -> bool:
        pod = waiting_pod(kubectl, name)
        if pod:
            bind(kubectl, pod, next(nodes).name)
        return status(kubectl, name).get("phase") in ("Running", "Succeeded")

    eventually(f"{name} runs", running, within_s=180)


@pytest.mark.alone  # the job takes all GPUs of a node, and each time that it finds others there it waits longer
def test_a_pod_that_its_node_turns_away_is_no_failure(
    kubectl: Kubectl, ledger: Ledger, workers: list[Node], admin: Kubectl
) -> None:
    """A pod bound to a node without free devices is rejected; a new Job resumes from the last step."""
    devices = int(admin.get("node", workers[0].name)["status"]["allocatable"]["emugpu.dev/emuGPU"])
    scheduler = {"actuator": "binding", "name": "case", "schedulerName": "case"}
    kubectl.apply(emujob("turned", steps=100, resources={"emuGPU": devices}, scheduler=scheduler))
    bind_until_it_runs(kubectl, "turned", workers)
    time.sleep(2)
    before = status(kubectl, "turned")
    kubectl("delete", "pods", "-l", "emugpu.dev/job=turned", "--wait=true")
    kubectl.apply(emujob("taker", steps=2000))
    taken = wait_phase(kubectl, "taker", "Running")["node"]
    bind(kubectl, eventually("the next pod to bind", lambda: waiting_pod(kubectl, "turned")), taken)
    old = (None, before["job"]["uid"])
    eventually("another Job", lambda: status(kubectl, "turned").get("job", {}).get("uid") not in old)
    found = status(kubectl, "turned")
    assert (found["rejections"], found["phase"]) == (before.get("rejections", 0) + 1, "Queued")
    assert "NodeRejected" in {event["reason"] for event in kubectl.events_of("EmuJob", "turned")}
    kubectl("delete", "emujob", "taker")
    bind_until_it_runs(kubectl, "turned", workers)
    done = wait_phase(kubectl, "turned", "Succeeded", within_s=60)
    assert done["failures"] == 0
    uid = kubectl.get("emujob", "turned")["metadata"]["uid"]
    check_every_step_once(eventually("all steps are reported", lambda: finished(ledger, uid)), 100)


def at_s(time_text: str) -> float:
    return datetime.fromisoformat(time_text).timestamp()


def reported_end(kubectl: Kubectl, name: str) -> Object:
    """The status after the event log has reported the job's end."""

    def seen() -> Object | None:
        found = status(kubectl, name)
        ended = [run.get("ended") for run in found.get("runs", ())]
        return found if found.get("phase") == "Succeeded" and ended[-1:] == ["finished"] else None

    found: Object = eventually(f"{name} is reported to its end", seen, within_s=120)
    return found


def check_runs(found: Object, steps: int, count: int) -> None:
    """Checks that each step belongs to exactly one run, and that the figures agree with the runs."""
    runs = found["runs"]
    assert len(runs) == count, runs
    assert [run["fromStep"] for run in runs] == [0, *(run["toStep"] for run in runs[:-1])], runs
    assert (runs[-1]["toStep"], found["stepsDone"]) == (steps, steps)
    assert all(run["devices"] and at_s(run["from"]) < at_s(run["to"]) for run in runs)
    assert all(at_s(one["to"]) <= at_s(next_["from"]) for one, next_ in itertools.pairwise(runs))
    submitted = at_s(found["submittedAt"])
    assert found["observedJCTSeconds"] == pytest.approx(at_s(runs[-1]["to"]) - submitted, abs=2e-6)
    assert found["queueingDelaySeconds"] == pytest.approx(at_s(runs[0]["from"]) - submitted, abs=2e-6)
    held = sum(at_s(run["to"]) - at_s(run["from"]) for run in runs)
    assert found["serviceSeconds"] == pytest.approx(held, abs=2e-6 * count)
    (measured,) = [c for c in found["conditions"] if c["type"] == "Measured"]
    assert measured["status"] == "True", measured


def preempted_once(kubectl: Kubectl, name: str, first: str, second: str) -> None:
    """Run the job for some seconds on node `first`, then on node `second`."""
    wait_phase(kubectl, name, "Queued")
    allocate(kubectl, name, first)
    wait_phase(kubectl, name, "Running")
    time.sleep(3)
    suspend(kubectl, name)
    wait_phase(kubectl, name, "Preempted")
    eventually("its pods are gone", lambda: gone(kubectl, name))
    allocate(kubectl, name, second)


def test_the_figures_of_a_preempted_job(kubectl: Kubectl, workers: list[Node]) -> None:
    """The status has the scheduler's prediction, the observed JCT, and each run with times to the microsecond."""
    job = emujob("figures", steps=400, scheduler={"actuator": "jobs", "name": "case"})
    predicted = {"seconds": 12.5, "by": "case", "at": "2026-01-01T00:00:00.000001Z"}
    job["metadata"]["annotations"] = {"emugpu.dev/predicted": json.dumps(predicted)}
    kubectl.apply(job)
    preempted_once(kubectl, "figures", workers[0].name, workers[1].name)
    ages_s: list[float] = []
    steps = 0
    while not ages_s or steps < 150:
        found = status(kubectl, "figures")
        ages_s += [time.time() - at_s(found["stepsDoneAt"])] if found["phase"] == "Running" else []
        assert found.get("stepsDone", 0) >= steps
        steps = found.get("stepsDone", 0)
        time.sleep(0.3)
    assert max(ages_s) < 8, ages_s  # progress is reported at least every 5 s
    found = reported_end(kubectl, "figures")
    check_runs(found, 400, 2)
    assert [run["node"] for run in found["runs"]] == [workers[0].name, workers[1].name]
    assert (found["preemptions"], found["runs"][0]["ended"]) == (1, "released")
    assert found["predictedJCTSeconds"] == {"value": 12.5, "by": "case", "at": "2026-01-01T00:00:00.000001Z"}
    assert found["slowdown"] == pytest.approx(found["observedJCTSeconds"] / 20, rel=1e-3)
    events = [e["reason"] for e in kubectl.events_of("EmuJob", "figures")]
    assert {"Running", "Preempted", "Complete"} <= set(events)


def restarted(admin: Kubectl, component: str) -> None:
    """The pod is killed and deleted with its local data; a new pod continues the job."""
    within, label = admin.within(SYSTEM), f"app.kubernetes.io/component={component}"
    before = {pod["metadata"]["uid"] for pod in within.list("pods", "-l", label)}
    within("delete", "pods", "-l", label, "--force", "--grace-period=0")

    def ready() -> bool:
        pods = [pod for pod in within.list("pods", "-l", label) if pod["metadata"]["uid"] not in before]
        conditions = [c for pod in pods for c in pod["status"].get("conditions", ())]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    eventually(f"another {component}", ready, within_s=90)


@pytest.mark.alone
@pytest.mark.long
def test_the_figures_stay_right_whatever_is_killed(kubectl: Kubectl, admin: Kubectl, workers: list[Node]) -> None:
    """While a job runs, waits and runs again, the controller loses its store, then Redis all its events."""
    kubectl.apply(emujob("tough", steps=600, scheduler={"actuator": "jobs", "name": "case"}))
    wait_phase(kubectl, "tough", "Queued")
    submitted = status(kubectl, "tough")["submittedAt"]
    preempted_once(kubectl, "tough", workers[0].name, workers[1].name)
    wait_phase(kubectl, "tough", "Running")
    restarted(admin, "jobs")  # reads all events from Redis again
    eventually("it is looked at again", lambda: status(kubectl, "tough")["stepsDone"] > 150, within_s=60)
    restarted(admin, "redis")  # old events are in the controller's store, new ones wait on the nodes
    found = reported_end(kubectl, "tough")
    check_runs(found, 600, 2)
    assert (found["submittedAt"], found["preemptions"], found["failures"]) == (submitted, 1, 0)
