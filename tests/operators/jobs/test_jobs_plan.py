"""The planner: what an EmuJob's life looks like under each actuator, and what goes wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from emulator_runtime.domain.units import GIB
from operators.controllers.actions import DeleteJob, SuspendJob
from operators.fitting.offers import NodeOffer
from operators.jobs.creation_attempts import RefusedCreation
from operators.jobs.plan import CreateJob, CreateService
from operators.kube.documents import Key, condition_of
from operators.objects.emujob import EmuJob
from operators.objects.job import BatchJob
from operators.objects.pod import Pod
from operators.objects.scheduler_notes import SchedulingProblem
from operators.results.computing import job_result
from operators.results.facts_and_result import JobFacts as ResultFacts
from operators.results.status import Outcome
from tests.support.event_streams import EventStream

Worlds = Any
WORK: dict[str, Any] = {"steps": 100, "model": "resnet50", "batchSize": 64}
BY_JOBS: dict[str, Any] = {"scheduler": {"actuator": "jobs", "name": "s"}}
V100 = "Tesla_V100-PCIE-32GB"
START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


def test_a_job_without_a_scheduler_runs_at_once(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    assert at.status["phase"] == "Queued" and at.documents[0]["spec"]["suspend"] is False
    at.later(2)
    at.kubernetes()
    at.settle()
    assert (at.status["phase"], at.status["node"], at.status["gpus"]) == ("Running", "w1", 1)
    assert at.status["allocation"]["nodes"] == ["w1"]
    at.later(10)
    at.complete()
    at.settle()
    assert (at.status["phase"], at.status["progress"]) == ("Succeeded", "100/100")
    assert (at.status["observedJCTSeconds"], at.status["queueingDelaySeconds"]) == (12.0, 2.0)
    assert at.status["node"] == "w1"
    assert at.condition("Complete") == ("True", "AllStepsDone")
    assert at.told() == ["Running", "Complete"]
    at.job, at.pods = None, []  # somebody clears the finished Job away
    assert at.settle() == []
    assert at.status["phase"] == "Succeeded"


def test_pods_that_are_done_had_their_place(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    at.kubernetes()
    at.settle()
    at.end_pod("Succeeded")
    assert at.settle() == [] and at.condition("Scheduled") == ("True", "PodsBound")


def test_a_scheduler_resumes_and_preempts(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    at.kubernetes()
    at.settle()
    assert at.documents[0]["spec"]["suspend"] is True
    assert (at.status["phase"], at.condition("Scheduled")) == ("Queued", ("False", "WaitingForScheduler"))
    at.allocate('{"configuration":"default","nodes":["w2"],"cpu_milli":4000,"memory_bytes":5,"devices":["EMU-1"]}')
    assert at.settle() and at.status["phase"] == "Starting"
    at.kubernetes()
    at.settle()
    assert at.status["phase"] == "Running"
    assert at.status["allocation"] == {
        "configuration": "default",
        "nodes": ["w2"],
        "gpus": 1,
        "cpu": "4000m",
        "memory": "5",
        "devices": ["EMU-1"],
    }
    at.later(5)
    at.change(suspended=True)
    at.settle()
    at.kubernetes()
    at.settle()
    assert (at.status["phase"], at.status["preemptions"]) == ("Preempted", 1)
    assert "allocation" not in at.status and "node" not in at.status
    at.later(5)
    at.allocate()
    at.kubernetes()
    at.settle()
    assert (at.status["phase"], at.status["preemptions"], at.status["failures"]) == ("Running", 1, 0)
    assert at.told() == ["Running", "Preempted", "Running"]
    assert not [action for action in at.log if isinstance(action, SuspendJob | DeleteJob)]


def test_a_preemption_between_two_looks_is_counted(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    at.allocate()
    at.kubernetes()
    at.settle()
    at.later(3)
    at.change(started="2026-01-01T00:00:03Z")  # suspended, resumed, and nobody looked
    at.settle()
    assert at.status["preemptions"] == 1


def test_a_suspension_after_the_end_is_no_preemption(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    at.allocate()
    at.kubernetes()
    at.settle()
    at.complete()
    at.change(suspended=True)  # its scheduler had not heard of the end
    at.settle()
    assert (at.status["phase"], at.status["preemptions"]) == ("Succeeded", 0)


def test_the_user_holds_a_job(world: Worlds) -> None:
    at = world({**WORK, "suspend": True})
    at.settle()
    assert at.documents[0]["spec"]["suspend"] is True
    assert at.condition("Progressing") == ("False", "Held")
    at.spec["suspend"] = False
    at.kubernetes()
    at.settle()
    assert not at.job.suspended
    at.kubernetes()
    at.settle()
    at.spec["suspend"] = True
    at.settle()
    assert at.job.suspended
    at.spec["suspend"] = False  # while the pods are still ending
    at.change(active=0)
    assert not [action for action in at.settle() if isinstance(action, SuspendJob)]
    at.kubernetes()
    assert [action for action in at.settle() if isinstance(action, SuspendJob)] == [SuspendJob(at.job.key, False)]


def test_a_hold_under_a_scheduler_is_not_ended_by_us(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    at.allocate()
    at.kubernetes()
    at.spec["suspend"] = True
    at.settle()
    assert at.job.suspended
    at.kubernetes()
    at.spec["suspend"] = False
    at.settle()
    assert at.job.suspended and at.status["phase"] == "Preempted"


def test_what_fits_nowhere_is_rejected_until_the_pools_change(world: Worlds) -> None:
    at = world({**WORK, "resources": {"emuGPU": 8}, "batchSize": 512}, offers=())
    at.settle()
    assert (at.status["phase"], at.condition("Accepted")) == ("Rejected", ("False", "NoNodeFits"))
    assert at.documents == []
    at.offers = (NodeOffer("w1", 8000, 64 * GIB, ((V100, 32 * GIB),) * 8),)
    at.settle()
    assert (at.status["phase"], at.condition("Accepted")) == ("Queued", ("True", "Accepted"))
    assert at.told() == ["NoNodeFits", "Accepted"]
    at.kubernetes()
    at.offers = ()  # what runs is beyond that
    at.settle()
    assert at.status["phase"] == "Running"


def test_a_queued_job_that_fits_no_more_is_rejected_and_comes_back(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    offers, at.offers = at.offers, ()
    at.settle()
    assert at.status["phase"] == "Rejected"
    at.offers = offers
    at.settle()
    assert at.status["phase"] == "Queued" and len(at.documents) == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"gpuType": "T4"}, "needs Tesla-T4; the pools offer Tesla_V100-PCIE-32GB"),
        ({"resources": {"emuGPU": 5}, "batchSize": 60}, "needs 5 GPUs on a node, a node has 4 that will do"),
        ({"nodes": 3, "batchSize": 63}, "needs 3 nodes, only 2 are large enough"),
        ({"resources": {"cpu": 9}}, "needs 9 CPUs on a node, a node has 8"),
        ({"resources": {"memory": "65Gi"}}, "needs 65.00 GiB on a node, a node has 64.00 GiB"),
        ({"model": "resnet5"}, "profiles: unknown model 'resnet5'; did you mean resnet50"),
        (
            {"batchSize": 10**9},
            "batchSize: resnet50 was measured at batch sizes 1 to 256 on a GPU, not at 1000000000; "
            "give 1 to 256 for 1 GPU",
        ),
        (
            {"batchSize": 10**9, "resources": {"emuGPU": 2}, "nodes": 2},
            "batchSize: resnet50 was measured at batch sizes 1 to 256 on a GPU, not at 250000000; "
            "give 4 to 1024 for 4 GPUs",
        ),
        (
            {"batchSize": 63, "resources": {"emuGPU": 4}},
            "batchSize: 63 samples can't be divided equally among 4 GPUs; give e.g. 60",
        ),
    ],
)
def test_why_a_job_fits_nowhere(world: Worlds, spec: dict[str, Any], problem: str) -> None:
    at = world({**WORK, **spec})
    at.settle()
    (accepted,) = [c for c in at.status["conditions"] if c["type"] == "Accepted"]
    assert accepted["message"].startswith(problem)
    wrong = problem.startswith(("batchSize:", "profiles: unknown model"))  # whichever nodes there are
    assert accepted["reason"] == ("InvalidProfile" if wrong else "NoNodeFits")
    assert at.condition("Scheduled") == ("False", "Rejected")
    assert at.condition("Progressing") == ("False", accepted["reason"])


K80 = "Tesla_K80"


def test_a_batch_that_another_gpu_type_could_run_is_the_pools_fault(world: Worlds) -> None:
    """densenet121 was measured at 84 at most on a K80, and at 256 on an A100."""
    offers = (NodeOffer("w1", 8000, 64 * GIB, ((K80, 12 * GIB),)),)
    at = world({**WORK, "model": "densenet121", "batchSize": 200}, offers=offers)
    at.settle()
    assert at.condition("Accepted") == ("False", "NoNodeFits")
    (message,) = [c["message"] for c in at.status["conditions"] if c["type"] == "Accepted"]
    assert message == (
        "batchSize: densenet121 on Tesla_K80 was measured at batch sizes 1 to 84 on a GPU, not at 200; "
        "give 1 to 84 for 1 GPU, or apply a pool of a GPU type that was measured further"
    )
    at.offers = (*offers, NodeOffer("w2", 8000, 64 * GIB, (("NVIDIA_A100-SXM4-40GB", 40 * GIB),)))
    at.settle()
    assert at.condition("Accepted") == ("True", "Accepted")


@pytest.mark.parametrize("types", [["K80"], ["K80", "T4"]])  # on a T4 it wasn't measured
def test_a_batch_beyond_all_types_that_it_asks_for_is_wrong_anywhere(world: Worlds, types: list[str]) -> None:
    at = world({**WORK, "model": "densenet121", "batchSize": 200, "gpuTypes": types}, offers=())
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidProfile")
    (message,) = [c["message"] for c in at.status["conditions"] if c["type"] == "Accepted"]
    assert message.startswith("batchSize: densenet121 on Tesla_K80") and "give 1 to 84 for 1 GPU" in message


def test_a_mistake_in_the_work_is_reported_where_there_is_no_pool_too(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS, "model": "resnet5"}, offers=())
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidProfile")
    assert at.condition("Scheduled") == ("False", "Rejected")  # and waits for no scheduler


def test_one_configuration_that_nodes_could_run_is_their_fault(world: Worlds) -> None:
    wrong = {"name": "wrong", "profile": {"model": "resnet5", "batchSize": 1}}
    far = {"name": "far", "profile": {"stepTime": "1s", "memory": "33Gi"}}
    at = world({"steps": 1, "configurations": [wrong, far]})
    at.settle()
    assert at.condition("Accepted") == ("False", "NoNodeFits")


def test_memory_of_the_gpu_and_names_of_configurations(world: Worlds) -> None:
    far = {"name": "far", "profile": {"stepTime": "1s", "memory": "33Gi"}}
    at = world({"steps": 1, "configurations": [far, {**far, "name": "further", "gpuTypes": ["T4"]}]})
    at.settle()
    (accepted,) = [c for c in at.status["conditions"] if c["type"] == "Accepted"]
    assert accepted["message"] == (
        "far: needs 33.00 GiB of memory on each GPU, the largest has 32.00 GiB usable; "
        "further: needs Tesla-T4; the pools offer Tesla_V100-PCIE-32GB"
    )


def test_the_first_configuration_that_fits_is_taken(world: Worlds) -> None:
    big = {"name": "big", "resources": {"emuGPU": 8}, "profile": {"stepTime": "1s"}}
    at = world({"steps": 5, "configurations": [big, {"name": "small", "profile": {"stepTime": "3.25s"}}]})
    at.settle()
    template = at.documents[0]["spec"]["template"]
    assert template["metadata"]["annotations"]["emugpu.dev/configuration"] == "small"
    (container,) = template["spec"]["containers"]
    assert container["resources"]["limits"] == {"emugpu.dev/emuGPU": "1"}
    configurations = ["--configuration", "big=--step-time-s 1", "--configuration", "small=--step-time-s 3.25"]
    assert container["args"] == ["train", "--steps", "5", *configurations]


def test_a_job_that_may_run_without_a_gpu_has_a_place_on_its_node(world: Worlds) -> None:
    gpu = {"name": "gpu", "profile": {"stepTime": "1s", "memory": "1Gi"}}
    cpu = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 4}, "profile": {"stepTime": "3s", "memory": "1Gi"}}
    limits = []
    for configurations in ([gpu, cpu], [cpu, gpu], [cpu]):
        at = world({"steps": 5, "configurations": configurations})
        at.settle()
        (container,) = at.documents[0]["spec"]["template"]["spec"]["containers"]
        limits.append(container["resources"]["limits"])
    assert limits == [
        {"emugpu.dev/emuGPU": "1", "emugpu.dev/host": "1"},
        {"emugpu.dev/host": "1"},
        {"emugpu.dev/host": "1"},
    ]
    assert container["args"] == ["train", "--steps", "5", "--step-time-s", "3"]  # and there is no GPU to have memory


def test_a_job_without_a_gpu_runs_in_a_pool_without_gpus(world: Worlds) -> None:
    at = world({"steps": 5, "stepTime": "1s", "resources": {"emuGPU": 0, "cpu": 4}})
    at.offers = (NodeOffer("w1", 8000, 64 * GIB, ()),)
    at.settle()
    assert at.condition("Accepted")[0] == "True"
    assert "affinity" not in at.documents[0]["spec"]["template"]["spec"]


def test_a_pod_that_its_node_turned_away_is_no_failure(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    at.kubernetes()
    at.settle()
    at.end_pod(rejected=True)
    actions = at.settle()
    assert [action for action in actions if isinstance(action, DeleteJob)] == [DeleteJob(at.job.key)]
    assert (at.status["rejections"], at.status["failures"], at.status["preemptions"]) == (1, 0, 0)
    at.kubernetes()
    at.settle()
    assert len(at.documents) == 2
    at.kubernetes()
    at.settle()
    assert (at.status["phase"], at.status["failures"], at.status["preemptions"]) == ("Running", 0, 0)
    assert "NodeRejected" in at.told()
    labels = [document["spec"]["template"]["metadata"]["labels"] for document in at.documents]
    assert [each["emugpu.dev/job-uid"] for each in labels] == ["uid", "uid"]  # by which its progress is known


def test_a_node_that_turns_everything_away_is_asked_less_often(world: Worlds) -> None:
    at = world(WORK)
    waits = []
    for _ in range(5):
        at.settle()
        at.kubernetes()
        at.settle()
        at.end_pod(rejected=True)
        at.settle()
        waited = 0
        while not at.job.deleting:
            at.later(1)
            waited += 1
            at.settle()
        waits.append(waited)
        at.kubernetes()
    assert waits == [0, 1, 2, 4, 8]
    assert (at.status["rejections"], at.status["failures"]) == (5, 0)


def test_failures_are_counted_and_a_wrong_command_is_the_end(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    at.kubernetes()
    at.end_pod()
    at.settle()
    assert at.status["failures"] == 1
    at.change(failure_reason="PodFailurePolicy", failure="Container train for pod lab/j-0 failed with exit code 64")
    at.settle()
    assert at.status["phase"] == "Failed" and at.condition("Failed") == ("True", "PodFailurePolicy")
    (ended,) = at.pods
    log = "step 1 of 100\nemugpu: --batch-size: 3 samples can't be divided equally among 2 GPUs\n\n"
    at.pods = [replace(ended, runs=(replace(ended.runs[0], exit_code=2, message=log),))]
    at.settle()
    failed = condition_of(at.status, "Failed")["message"]
    assert failed.endswith(
        "exit code 64; its last line: emugpu: --batch-size: 3 samples can't be divided equally among 2 GPUs"
    )
    at.pods = [replace(ended, runs=(replace(ended.runs[0], exit_code=2, message="x" * 5000),))]
    at.settle()
    assert len(condition_of(at.status, "Failed")["message"]) < 500
    at.job, at.pods = None, []
    at.settle()
    assert at.condition("Failed") == ("True", "PodFailurePolicy")
    assert len(at.documents) == 1


def test_a_job_of_somebody_else_is_left_alone(world: Worlds) -> None:
    at = world(WORK)
    at.job = BatchJob(Key("lab", "j", "theirs", "1"), owner="")
    at.settle()
    assert at.condition("Accepted") == ("False", "NameTaken") and at.documents == []
    at.job = None
    at.settle()
    assert len(at.documents) == 1


@pytest.mark.parametrize("more", [{}, BY_JOBS, {"suspend": True}, {"nodes": 2, "batchSize": 32}])
def test_a_job_that_is_refused_says_so_and_is_asked_for_later(world: Worlds, more: dict[str, Any]) -> None:
    at = world({**WORK, **more})
    at.refused_creation = RefusedCreation("", 0.5)  # once: the next attempt may heal it
    at.settle()
    assert at.documents == [] and not at.has_service and at.condition("Scheduled")[1] != "NotCarriedOut"
    assert at.whole_plan().again_s == 0.5
    at.refused_creation = RefusedCreation("create jobs: exceeded quota", 8.0)
    at.settle()
    assert at.documents == [] and at.status["phase"] == "Pending" and at.whole_plan().again_s == 8.0
    for kind in ("Scheduled", "Progressing"):
        assert at.condition(kind) == ("False", "NotCarriedOut")
    (scheduled,) = [c for c in at.status["conditions"] if c["type"] == "Scheduled"]
    assert scheduled["message"] == "create jobs: exceeded quota"
    at.refused_creation = RefusedCreation("create jobs: exceeded quota", 0.0)
    assert [action for action in at.plan() if isinstance(action, CreateJob)]
    at.refused_creation = None
    at.settle()
    assert len(at.documents) == 1 and at.condition("Scheduled")[1] != "NotCarriedOut"
    assert at.told() == ["NotCarriedOut"]


def test_a_service_that_is_refused_is_reported_while_the_job_waits(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS, "nodes": 2, "batchSize": 32})
    at.settle()
    at.has_service, at.refused_creation = False, RefusedCreation("create services: no", 8.0)
    at.settle()
    assert at.condition("Scheduled") == ("False", "NotCarriedOut") and at.whole_plan().again_s == 8.0
    at.refused_creation = None
    at.settle()
    assert at.has_service and at.condition("Scheduled") == ("False", "WaitingForScheduler")


def test_pods_of_an_older_job_are_waited_for(world: Worlds) -> None:
    at = world(WORK)
    at.pods = [Pod(Key("lab", "j-0", "p", "1"), "j", "older", node="w1", phase="Running")]
    at.settle()
    assert at.documents == [] and at.status["phase"] == "Pending"
    for kind in ("Scheduled", "Progressing"):
        assert at.condition(kind) == ("False", "PodLeft")
    (scheduled,) = [c for c in at.status["conditions"] if c["type"] == "Scheduled"]
    assert scheduled["message"].startswith("pod j-0 belongs to a Job that was deleted without its pods")
    assert "`kubectl delete pod -n lab j-0`" in scheduled["message"]
    at.pods = [replace(at.pods[0], deleting=True)]
    at.settle()
    assert at.documents == [] and at.condition("Scheduled") == ("False", "PodsEnding")
    at.pods = []
    at.settle()
    assert len(at.documents) == 1 and at.condition("Scheduled") == ("False", "WaitingForNodes")


def test_a_specification_that_cannot_be_read(world: Worlds) -> None:
    at = world({"steps": 1, "stepTime": "1 day"})
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidSpec") and at.documents == []
    assert (at.status["phase"], at.condition("Scheduled")) == ("Rejected", ("False", "Rejected"))


def test_what_runs_when_its_specification_can_be_read_no_more_ends_as_it_does(world: Worlds) -> None:
    """A newer operator may be stricter than the one that made the Job."""
    at = world({**WORK})
    at.settle()
    at.kubernetes()
    at.settle()
    where = {name: at.status[name] for name in ("gpus", "allocation", "node")}
    at.spec["stepTime"] = "1 day"
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidSpec")
    assert (at.status["phase"], at.condition("Scheduled")) == ("Running", ("True", "PodsBound"))
    assert at.status["progress"] == "0/100" and where.items() <= at.status.items()
    at.complete()
    at.settle()
    assert (at.status["phase"], at.status["progress"], at.documents[1:]) == ("Succeeded", "100/100", [])


def test_a_job_that_is_held_when_its_specification_can_be_read_no_more_is_rejected(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    assert at.status["phase"] == "Queued"
    at.spec["stepTime"] = "1 day"
    at.settle()
    assert at.status["phase"] == "Rejected"


def test_an_emujob_that_is_being_deleted_gets_nothing(world: Worlds) -> None:
    assert world(WORK, deleting=True).plan() == ()


def test_several_pods_find_each_other(world: Worlds) -> None:
    at = world({**WORK, "nodes": 2})
    actions = at.settle()
    kinds = [type(action) for action in actions if isinstance(action, CreateJob | CreateService)]
    assert kinds == [CreateService, CreateJob]
    spec = at.documents[0]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == "j"
    assert pod["containers"][0]["args"][-4:] == ["--nodes", "2", "--rendezvous", "j-0.j:29400"]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    at.has_service = False  # somebody deleted it
    assert [type(action) for action in at.settle()] == [CreateService]


def test_gates_and_foreign_schedulers(world: Worlds) -> None:
    gated = world({**WORK, "scheduler": {"actuator": "gated", "name": "s"}})
    gated.settle()
    spec = gated.documents[0]["spec"]
    assert spec["suspend"] is False
    assert spec["template"]["spec"]["schedulingGates"] == [{"name": "emugpu.dev/scheduler"}]
    bound = world({**WORK, "scheduler": {"actuator": "binding", "name": "s", "schedulerName": "observed"}})
    bound.settle()
    assert bound.documents[0]["spec"]["template"]["spec"]["schedulerName"] == "observed"


def test_failures_that_kubernetes_must_not_count(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    spec = at.documents[0]["spec"]
    assert spec["podReplacementPolicy"] == "Failed"
    disruption, stopped, wrong = spec["podFailurePolicy"]["rules"]
    assert disruption == {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}], "action": "Ignore"}
    assert (stopped["onExitCodes"]["values"], stopped["action"]) == ([143], "Ignore")
    assert (wrong["onExitCodes"]["values"], wrong["action"]) == ([64], "FailJob")
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] <= 5


def outcome(teller: EventStream, *, settled: bool = False, **facts: Any) -> Outcome:
    """What these events come to, of a job that was submitted at the start of the world."""
    known = ResultFacts("uid", "lab", "j", START_NS, steps=100, isolated_s=10.0, **facts)
    return Outcome(job_result(known, teller.events), settled, 0.9 if settled else None)


def test_results_take_the_place_of_what_the_api_tells(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, detail="GPU-1", key="uid/0")
    node.tell("progress", 8, 37, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    at.kubernetes()
    at.settle()
    assert (at.status["progress"], at.status["stepsDoneAt"]) == ("37/100", "2026-01-01T00:00:08.000000Z")
    run = {"node": "w1", "devices": ["GPU-1"], "from": "2026-01-01T00:00:01.500000Z", "fromStep": 0, "toStep": 37}
    assert at.status["runs"] == [run]
    assert at.condition("Measured") == ("True", "EventLog")
    node.tell("released", 9, 30, key="uid/0", from_step=30)  # it goes on from an older checkpoint
    at.outcome = outcome(node)
    at.settle()
    assert at.status["progress"] == "37/100"  # steps that were done stay done
    assert at.status["runs"][0]["to"] == "2026-01-01T00:00:09.000000Z" and at.status["runs"][0]["ended"] == "released"
    at.later(20)
    at.complete()
    at.settle()
    assert at.status["phase"] == "Running"  # the event log's word is on its way
    at.later(5)
    at.settle()
    assert at.status["phase"] == "Succeeded" and "observedJCTSeconds" not in at.status
    node.tell("attached", 12, key="uid/0")
    node.tell("finished", 19.25, 100, key="uid/0")
    at.outcome = outcome(node, settled=True)
    at.settle()
    shown = ("observedJCTSeconds", "queueingDelaySeconds", "serviceSeconds", "slowdown", "fairness", "finishedAt")
    expected = [19.25, 1.5, 14.75, 1.925, 0.9, "2026-01-01T00:00:19.250000Z"]
    assert [at.status[name] for name in shown] == expected
    at.outcome = None  # the source is away for a moment
    assert at.settle() == []


def test_one_whose_last_step_ended_while_it_was_being_stopped_is_done(world: Worlds) -> None:
    """Its pod went with the suspension, so Kubernetes never log_connected of the end; nobody has to run it once more for that."""
    at, node = world({**WORK, **BY_JOBS}), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, detail="GPU-1", key="uid/0")
    at.settle()
    at.allocate()
    at.kubernetes()
    at.outcome = outcome(node)
    at.settle()
    assert at.status["phase"] == "Running"
    at.change(suspended=True)
    at.settle()
    node.tell("finished", 19.25, 100, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    assert at.status["phase"] != "Succeeded"  # its pod is there still, and so are its devices
    at.kubernetes()
    at.later(20)
    at.settle()
    assert (at.status["phase"], at.status["observedJCTSeconds"]) == ("Succeeded", 19.25)
    assert at.condition("Complete") == ("True", "AllStepsDone")
    assert at.told()[-1] == "Complete"
    at.offers, at.outcome = (), None  # neither a cluster that has shrunk nor a store that was lost changes that
    assert at.settle() == [] and at.job is not None and at.job.suspended


def test_a_pod_that_comes_after_the_last_step_is_not_waited_for(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, detail="GPU-1", key="uid/0")
    at.settle()
    at.kubernetes()
    node.tell("finished", 19.25, 100, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    assert at.status["phase"] == "Running"  # it is about to say so
    at.pods = [replace(pod, node="", phase="Pending") for pod in at.pods]  # the one before was deleted
    at.settle()
    assert at.status["phase"] == "Succeeded"
    assert at.job is not None and at.job.suspended


def test_without_results_times_are_kubernetes_own(world: Worlds) -> None:
    at = world(WORK)
    at.settle()
    at.kubernetes()
    at.later(20)
    at.complete()
    at.settle()
    assert at.status["observedJCTSeconds"] == 20.0
    assert at.status["finishedAt"] == "2026-01-01T00:00:20Z"


def test_an_end_that_only_kubernetes_tells_is_shown_once_it_has_settled(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, key="uid/0")
    at.outcome = outcome(node, completed_ns=START_NS + 20 * 10**9)
    at.settle()
    at.kubernetes()
    at.later(20)
    at.complete()
    at.later(5)
    at.settle()
    assert at.status["phase"] == "Succeeded" and "finishedAt" not in at.status
    at.outcome = outcome(node, settled=True, completed_ns=START_NS + 20 * 10**9)
    at.settle()
    assert at.status["observedJCTSeconds"] == 20.0


def completed(world: Worlds, *, log_connected: bool = True) -> tuple[Any, EventStream]:
    """A job whose Job is complete after 20 s, while the log tells of its beginning only."""
    at, node = world(WORK, log_connected=log_connected), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    at.kubernetes()
    at.settle()
    at.later(20)
    at.complete()
    at.settle()
    return at, node


def test_who_reads_succeeded_finds_the_end_beside_it(world: Worlds) -> None:
    at, node = completed(world)
    assert (at.status["phase"], at.condition("Complete")) == ("Running", ("False", "NotFinished"))
    assert at.whole_plan().again_s == pytest.approx(5)
    at.later(2)
    assert at.settle() == [] and at.whole_plan().again_s == pytest.approx(3)
    node.tell("finished", 19.25, 100, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    assert (at.status["phase"], at.status["observedJCTSeconds"]) == ("Succeeded", 19.25)
    assert at.log[-1].event.note == "100/100 steps done, 19.25 s"
    assert at.whole_plan().again_s is None


def test_the_last_word_is_waited_for_five_seconds(world: Worlds) -> None:
    at, _ = completed(world)
    at.later(4.9)
    assert at.settle() == [] and at.status["phase"] == "Running"
    at.later(0.1)
    at.settle()
    assert at.status["phase"] == "Succeeded" and "finishedAt" not in at.status
    assert at.log[-1].event.note == "100/100 steps done"


def test_a_log_that_is_away_is_not_waited_for(world: Worlds) -> None:
    at, _ = completed(world, log_connected=False)
    assert at.status["phase"] == "Succeeded" and "finishedAt" not in at.status


def test_a_clock_that_is_set_back_holds_up_no_end(world: Worlds) -> None:
    at, _ = completed(world)
    at.later(-3600)
    at.settle()
    assert at.status["phase"] == "Succeeded"


def test_a_job_that_failed_has_its_end_at_once_and_the_end_of_its_run_when_that_comes(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1.5, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    at.kubernetes()
    at.settle()
    at.end_pod()
    at.change(failure_reason="PodFailurePolicy", failure="exit code 64", completed="2026-01-01T00:00:07Z")
    at.settle()
    assert (at.status["phase"], at.status["finishedAt"]) == ("Failed", "2026-01-01T00:00:07Z")
    assert "to" not in at.status["runs"][0]
    node.tell("failed", 6.5, key="uid/0")
    at.outcome = outcome(node, failed_ns=START_NS + 7 * 10**9)
    at.settle()
    assert (at.status["runs"][0]["to"], at.status["runs"][0]["ended"]) == ("2026-01-01T00:00:06.500000Z", "failed")
    at.outcome = outcome(
        EventStream("w1", begin_ns=START_NS, namespace="lab"), failed_ns=START_NS + 7 * 10**9
    )  # a store that was lost
    at.settle()
    assert at.status["runs"][0]["ended"] == "failed"


def test_a_store_that_was_lost_takes_nothing_back(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1, key="uid/0")
    node.tell("released", 5, 50, key="uid/0")
    node.tell("attached", 6, key="uid/0")
    node.tell("finished", 11, 100, key="uid/0")
    at.outcome = outcome(node, settled=True)
    at.settle()
    at.kubernetes()
    at.complete()
    at.settle()
    before = dict(at.status)
    rest = EventStream("w1", begin_ns=START_NS, namespace="lab")
    rest.events = node.events[2:]  # the older ones are gone from Redis too
    at.outcome = outcome(rest, settled=True)
    at.settle()
    assert [at.status[name] for name in ("runs", "serviceSeconds")] == [before["runs"], before["serviceSeconds"]]
    at.outcome = outcome(
        EventStream("w1", begin_ns=START_NS, namespace="lab"), settled=True, completed_ns=START_NS + 30 * 10**9
    )
    at.settle()
    assert at.status["observedJCTSeconds"] == 11.0


def test_a_clock_that_is_wrong_is_reported(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", 0.2, begin_ns=START_NS, namespace="lab")
    node.tell("attached", 1, key="uid/0")
    at.outcome = Outcome(job_result(ResultFacts("uid", "lab", "j", START_NS), node.events))
    at.settle()
    assert at.condition("Measured") == ("False", "Doubtful")
    (told,) = [c["message"] for c in at.status["conditions"] if c["type"] == "Measured"]
    assert told.startswith("the clock of node w1 was at least 195 ms ahead")


def test_a_status_shows_the_newest_runs(world: Worlds) -> None:
    at, node = world(WORK), EventStream("w1", begin_ns=START_NS, namespace="lab")
    for number in range(25):
        node.tell("attached", 2 * number, key="uid/0")
        node.tell("released", 2 * number + 1, number + 1, key="uid/0")
    at.outcome = outcome(node)
    at.settle()
    assert [run["fromStep"] for run in at.status["runs"]] == list(range(5, 25))


def test_a_forecast_is_taken_from_the_annotation_and_stays(world: Worlds) -> None:
    at = world(WORK)
    at.predicted = '{"seconds": 9.5, "by": "fifo", "at": "2026-01-01T00:00:00.000000Z"}'
    at.settle()
    assert at.status["predictedJCTSeconds"] == {"value": 9.5, "by": "fifo", "at": "2026-01-01T00:00:00.000000Z"}
    at.predicted = '{"seconds": 1, "by": "srtf", "at": "2026-01-01T00:01:00Z"}'
    at.settle()
    assert at.status["predictedJCTSeconds"]["value"] == 9.5
    at.predicted = ""
    at.settle()
    assert at.status["predictedJCTSeconds"]["value"] == 9.5


def test_a_forecast_that_can_not_be_read_is_reported_once(world: Worlds) -> None:
    at = world(WORK)
    at.predicted = '{"seconds": "soon", "by": "fifo", "at": "2026-01-01T00:00:00Z"}'
    at.settle()
    at.kubernetes()
    at.settle()
    assert at.told().count("PredictionUnreadable") == 1
    assert at.condition("Predicted") == ("False", "Unreadable") and "predictedJCTSeconds" not in at.status
    at.predicted = '{"seconds": 9.5, "by": "fifo", "at": "2026-01-01T00:00:00Z"}'
    at.settle()
    assert at.condition("Predicted") == ("True", "AtSubmission")


def test_why_its_scheduler_can_not_schedule_a_job_is_a_condition_and_an_event(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    at.settle()
    text = "policy p: the plan places job 'j' on w2, where it does not fit: it needs 8 CPUs, 2 of the node's 2 are free"
    at.scheduling_problem = SchedulingProblem("PlanRefused", text, "2026-01-01T00:00:00Z").to_json()
    at.settle()
    at.kubernetes()
    at.settle()
    assert at.condition("Scheduled") == ("False", "PlanRefused") and at.told().count("PlanRefused") == 1
    assert condition_of(at.status, "Scheduled")["message"] == text
    at.scheduling_problem = ""
    at.settle()
    assert at.condition("Scheduled") == ("False", "WaitingForScheduler")
    at.scheduling_problem = SchedulingProblem("StartRefused", "away", "2026-01-01T00:00:01Z").to_json()
    at.settle()
    assert at.condition("Scheduled") == ("False", "StartRefused") and at.told().count("StartRefused") == 1


@pytest.mark.parametrize(
    "text", ["soon", '{"reason": "PodsBound", "message": "all is well", "at": "2026-01-01T00:00:00Z"}']
)
def test_a_tenants_own_text_is_no_reason(world: Worlds, text: str) -> None:
    at = world({**WORK, **BY_JOBS})
    at.scheduling_problem = text
    at.settle()
    assert at.condition("Scheduled") == ("False", "WaitingForScheduler")


def test_a_plan_is_pure(world: Worlds) -> None:
    at = world({**WORK, **BY_JOBS})
    assert at.plan() == at.plan()
    assert isinstance(at.facts, EmuJob)
