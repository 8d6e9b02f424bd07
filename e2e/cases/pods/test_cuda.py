"""Unmodified CUDA programs in pods. Their image has PyTorch and nothing of emugpu: `emugpu cluster load emugpu-torch`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cases.conftest import EXAMPLES, allocatable
from e2e.cases.kube import Kubectl, Node, Object, eventually
from emulator_runtime.cuda.launch import step_ns
from emulator_runtime.profiles.table import ProfileTable

EXAMPLE = EXAMPLES / "cuda-resnet50"
START_S = 240
"""Pulling nothing, a pod imports PyTorch in 10 s; on a busy machine it takes longer."""

pytestmark = [pytest.mark.long, pytest.mark.alone]


def program(
    kubectl: Kubectl,
    name: str,
    *command: str,
    gpus: int = 1,
    environment: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """The example's script, or another command, in a pod."""
    (job,) = yaml.safe_load_all((EXAMPLE / "job.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"] | {"restartPolicy": "Never"} | spec
    (container,) = pod["containers"]
    container |= {"command": list(command), "resources": {"limits": {"emuGPU": gpus}}}
    container["env"] = [{"name": key, "value": value} for key, value in (environment or {}).items()]
    if not kubectl.exists("configmap", "cuda-resnet50"):
        kubectl("create", "configmap", "cuda-resnet50", f"--from-file={EXAMPLE / 'train.py'}")
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})


def train(*options: str) -> tuple[str, ...]:
    return ("python3", "/program/train.py", *options)


def steps_seen(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"step (\d+):", log)]


def finished_ms(log: str) -> float:
    """The median step time that the script printed at its end."""
    found = re.search(r"finished \d+ steps, ([0-9.]+) ms", log)
    assert found, log
    return float(found[1])


def test_the_example_is_killed_and_goes_on_at_its_checkpoint(kubectl: Kubectl, workers: list[Node]) -> None:
    kubectl("apply", "-k", str(EXAMPLE))

    def pod() -> Object | None:
        found = kubectl.list("pods", "-l", "job-name=cuda-resnet50")
        return found[0] if found else None

    name = eventually("the pod", pod)["metadata"]["name"]
    kubectl.wait_phase(name, "Running")
    eventually("a checkpoint", lambda: max(steps_seen(kubectl.logs(name)), default=0) >= 30, within_s=START_S)
    table = kubectl.inside(name, "nvidia-smi")
    assert "python" in table or "cuda-resnet50" in table
    query = ("--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits")

    def usage() -> bool:
        used_mib, utilisation = map(float, kubectl.inside(name, "nvidia-smi", *query).strip().split(","))
        return used_mib > 2000 and utilisation > 0

    eventually("memory and utilisation", usage, within_s=30)
    node = next(worker for worker in workers if worker.name == kubectl.get("pod", name)["spec"]["nodeName"])
    assert node.kill9("python3 [/]program/train.py") > 0
    kubectl.wait_jobs(["cuda-resnet50"], within_s=2 * START_S)
    log = kubectl.logs(name)
    first = int(re.search(r"from step (\d+)", log)[1])  # type: ignore[index]
    assert first >= 20 and first % 20 == 0
    assert "finished 100 steps" in log


def test_a_batch_that_is_too_large_is_torchs_own_error(kubectl: Kubectl) -> None:
    program(kubectl, "too-big", *train("--steps", "2", "--batch-size", "2048", "--images", "2048", "--workers", "0"))
    kubectl.wait_phase("too-big", "Failed", within_s=START_S)
    log = kubectl.logs("too-big")
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in log


def test_a_shell_in_the_container_doesnt_notice(kubectl: Kubectl) -> None:
    program(kubectl, "shell", "sh", "-c", "busybox echo out; ls / >/dev/null; sleep 3600")
    kubectl.wait_phase("shell", "Running")
    eventually("its output", lambda: kubectl.logs("shell") == "out\n")
    assert kubectl.inside("shell", "sh", "-c", "python3 -c 'print(1)' 2>&1") == "1\n"


def test_four_processes_with_a_gpu_each(kubectl: Kubectl) -> None:
    options = ("--steps", "20", "--batch-size", "16", "--workers", "0", "--images", "256", "--checkpoint-every", "1000")
    program(kubectl, "four", "torchrun", "--nproc-per-node", "4", "/program/train.py", *options, gpus=4)
    kubectl.wait_phase("four", "Succeeded", within_s=2 * START_S)
    log = kubectl.logs("four")
    assert [f"rank {rank}: finished 20 steps" in log for rank in range(4)] == [True] * 4


def test_a_job_over_two_pods(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "cuda-resnet50", f"--from-file={EXAMPLE / 'train.py'}")
    kubectl("apply", "-f", str(EXAMPLE / "ddp.yaml"))
    kubectl.wait_jobs(["cuda-ddp"], within_s=3 * START_S)
    pods = kubectl.list("pods", "-l", "job-name=cuda-ddp")
    logs = [kubectl.logs(pod["metadata"]["name"]) for pod in pods]
    assert sorted(re.findall(r"rank \d: finished 40 steps", "".join(logs))) == [
        "rank 0: finished 40 steps",
        "rank 1: finished 40 steps",
    ]
    one_ms, other_ms = map(finished_ms, logs)
    assert one_ms == pytest.approx(other_ms, rel=0.02), "ranks go in step"


def test_a_step_takes_as_long_as_the_profile_says(kubectl: Kubectl) -> None:
    """The pod's author names the measured time, which is that of single precision; the emulated GPU finds the factor in the first
    steps."""
    step_ms = step_ns("resnet50:64", "V100", ProfileTable.bundled()) / 1e6
    options = ("--no-amp", "--steps", "60", "--batch-size", "64", "--checkpoint-every", "1000")
    program(kubectl, "anchored", *train(*options), environment={"EMUGPU_CUDA_STEP": f"{step_ms:.3f}ms"})
    kubectl.wait_phase("anchored", "Succeeded", within_s=2 * START_S)
    assert finished_ms(kubectl.logs("anchored")) == pytest.approx(step_ms, rel=0.02)


SHARED = """
pools:
- name: default
  gpus:
  - {type: V100, count: 1}
  sharing:
    timeSlicing:
      resources:
      - {name: emugpu.dev/emuGPU, replicas: 4}
  cuda: {time: 1ms}
"""


def test_two_programs_on_one_device_have_half_of_it_each(
    kubectl: Kubectl, pools: Callable[[Path], None], admin: Kubectl, workers: list[Node], tmp_path: Path
) -> None:
    """Each kernel takes a millisecond here, so that steps take longer than this machine's CPUs need for them."""
    values = tmp_path / "shared.yaml"
    values.write_text(SHARED, encoding="utf-8")
    pools(values)
    for worker in workers:
        eventually(f"4 shares of {worker.name}", lambda w=worker: allocatable(admin, w.name) == 4)
    node = {"kubernetes.io/hostname": workers[0].name}
    options = ("--batch-size", "8", "--workers", "0", "--images", "64", "--checkpoint-every", "1000")
    program(kubectl, "alone", *train("--steps", "30", *options), nodeSelector=node)
    kubectl.wait_phase("alone", "Succeeded", within_s=2 * START_S)
    alone_ms = finished_ms(kubectl.logs("alone"))
    for name in ("one", "two"):
        program(kubectl, name, *train("--steps", "60", *options), nodeSelector=node)
    for name in ("one", "two"):
        kubectl.wait_phase(name, "Succeeded", within_s=3 * START_S)
    both = [finished_ms(kubectl.logs(name)) for name in ("one", "two")]
    assert statistics.mean(both) == pytest.approx(2 * alone_ms, rel=0.05), (alone_ms, both)
