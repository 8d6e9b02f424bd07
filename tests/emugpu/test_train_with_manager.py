"""`emugpu train` and `emugpu smi` against a real sharing manager: the event log covers every step once."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from emugpu import gpu
from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.domain.gpu import Device, device_uuid
from emulator_runtime.domain.mig import instances
from emulator_runtime.domain.units import GIB
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.node.inventory import mig_member

pytestmark = pytest.mark.processes
Start = Callable[..., "subprocess.Popen[str]"]
TYPE = "Tesla_V100-PCIE-32GB"
TWO_GPUS = [{"index": n, "gpu_type": TYPE, "memory_bytes": 32 * GIB} for n in range(2)]
ENDED_S = 20


class Node:
    """A manager of these GPUs as a process of its own."""

    def __init__(self, directory: Path, entries: Sequence[Message] = TWO_GPUS, **settings: str) -> None:
        self.directory, self.settings = directory, settings
        (directory / "inventory.json").write_text(json.dumps(entries))
        self.socket = directory / "manager.sock"
        self.start()

    def start(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")}
        settings = {
            "NODE": "n1",
            "INVENTORY": str(self.directory / "inventory.json"),
            "SOCKET_DIR": str(self.directory),
            "STATE_DIR": str(self.directory / "state"),
            **self.settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sharing_manager"],
            env=environ | {f"EMUGPU_MANAGER_{name}": value for name, value in settings.items()},
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _admin(self) -> Channel:
        give_up = time.monotonic() + ENDED_S
        while True:
            try:
                return Channel.connect(self.directory / "admin.sock", ENDED_S)
            except ManagerUnavailableError:
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < give_up
                time.sleep(0.01)

    def ask(self, message: Message) -> Message:
        admin = self._admin()
        try:
            return raise_for(admin.request(message))
        finally:
            admin.close()

    def grant(self, job: str, *devices: int, steps_done: int = 0) -> str:
        return self.grant_of(job, [device_uuid("n1", index) for index in devices], steps_done)

    def grant_of(self, job: str, uuids: Sequence[str], steps_done: int = 0) -> str:
        return str(self.ask({"op": "grant", "job_id": job, "devices": uuids, "steps_done": steps_done})["token"])

    def events(self, job: str) -> list[Message]:
        admin, events = self._admin(), []
        admin.send({"op": "subscribe"})
        while "event" in (message := admin.receive()):
            events.append(message)
        admin.close()
        return [event for event in events if event["job_id"] == job]

    def covered(self, job: str) -> int:
        """How many steps the log has, checked to be without gap or overlap."""
        ranges = [(event["from_step"], event["steps_done"]) for event in self.events(job)]
        assert ranges[0][0] == 0
        assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges)), ranges
        assert all(first <= last for first, last in ranges), ranges
        return int(ranges[-1][1])

    def wait_for_step(self, job: str, step: int) -> None:
        give_up = time.monotonic() + ENDED_S
        while self.ask({"op": "steps", "job_id": job})["steps_done"] < step:
            assert time.monotonic() < give_up
            time.sleep(0.01)


@pytest.fixture
def node(short_directory: Path) -> Iterator[Node]:
    node = Node(short_directory)
    yield node
    node.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=ENDED_S)
    return process.returncode, output, errors


def train(*arguments: str) -> tuple[str, ...]:
    return ("train", "--step-time-s", "0.005", "--memory", "2GiB", "--steps", "200", "--json", *arguments)


def test_kill_minus_9_of_the_manager_and_every_step_is_run_once(emugpu: Start, node: Node) -> None:
    job = emugpu(node.socket, *train(), token=node.grant("a", 0))
    for step in (20, 100):
        node.wait_for_step("a", step)
        node.kill()
        node.start()
    code, output, errors = ended(job)
    assert code == 0, errors
    assert json.loads(output)["steps_run"] == 200
    assert node.covered("a") == 200
    assert [event["event"] for event in node.events("a")][-1] == "finished"


def test_sigterm_and_a_new_grant_go_on_where_it_was(emugpu: Start, node: Node) -> None:
    done = 0
    for after in (15, 60):
        job = emugpu(node.socket, *train(), token=node.grant("a", 0, steps_done=done))
        node.wait_for_step("a", after)
        job.send_signal(signal.SIGTERM)
        code, output, errors = ended(job)
        assert code == 143, errors
        done = json.loads(output)["steps_done"]
        assert done >= after
        assert node.covered("a") == done
    code, output, _ = ended(emugpu(node.socket, *train(), token=node.grant("a", 1, steps_done=done)))
    assert (code, json.loads(output)["steps_run"]) == (0, 200 - done)
    assert node.covered("a") == 200


def elastic(*arguments: str) -> tuple[str, ...]:
    return ("train", "--samples", "6000", "--model", "alexnet", "--batch-size", "16", "--json", *arguments)


def test_other_gpus_and_batches_do_every_sample_once(emugpu: Start, node: Node) -> None:
    """One GPU, then two in larger steps while the manager is killed, then one in steps that 6000 isn't a multiple of."""
    done = 0
    for devices, batch_size, after in (((0,), "", 300), ((0, 1), "64", 1500)):
        token = node.grant("a", *devices, steps_done=done)
        job = emugpu(node.socket, *elastic(), token=token, EMUGPU_BATCH_SIZE=batch_size)
        node.wait_for_step("a", after)
        if len(devices) == 2:
            node.kill()
            node.start()
            node.wait_for_step("a", after + 300)
        job.send_signal(signal.SIGTERM)
        code, output, errors = ended(job)
        assert code == 143, errors
        before, done = done, json.loads(output)["samples_done"]
        assert (done - before) % int(batch_size or 16) == 0
        assert node.covered("a") == done
    token = node.grant("a", 1, steps_done=done)
    code, output, errors = ended(emugpu(node.socket, *elastic(), token=token, EMUGPU_BATCH_SIZE="21"))
    assert (code, json.loads(output)["steps_run"]) == (0, -(-(6000 - done) // 21)), errors
    assert node.covered("a") == 6000


def test_two_gpus_in_one_container_and_out_of_memory(emugpu: Start, node: Node) -> None:
    arguments = ("train", "--model", "resnet18", "--batch-size", "8", "--steps", "5", "--json")
    code, output, errors = ended(emugpu(node.socket, *arguments, token=node.grant("a", 0, 1)))
    assert code == 0, errors
    assert json.loads(output)["profile"]["batch_per_gpu"] == 4
    arguments = ("train", "--step-time-s", "1", "--memory", "31GiB", "--steps", "5")
    code, _, errors = ended(emugpu(node.socket, *arguments, token=node.grant("b", 0)))
    assert code == 1
    assert errors.startswith("emugpu train: torch.cuda.OutOfMemoryError: CUDA out of memory")


def test_smi_sees_what_a_job_holds(emugpu: Start, node: Node) -> None:
    token = node.grant("a", 1)
    job = emugpu(node.socket, "train", "--step-time-s", "0.05", "--memory", "2GiB", "--steps", "1000", token=token)
    node.wait_for_step("a", 3)
    query = ("smi", "--query-gpu=index,name,uuid,memory.used,memory.total", "--format=csv,noheader")
    assert ended(emugpu(node.socket, *query, token=token)) == (
        0,
        f"0, {TYPE}, {device_uuid('n1', 1)}, 2048 MiB, 32768 MiB\n",
        "",
    )
    code, output, _ = ended(emugpu(None, *query, "--admin", str(node.directory / "admin.sock")))
    assert (code, [line.split(", ")[3] for line in output.splitlines()]) == (0, ["0 MiB", "2048 MiB"])
    job.send_signal(signal.SIGTERM)
    assert ended(job)[0] == 143


def test_a_mig_instance_is_slower_and_smaller_and_smi_shows_its_gpu(emugpu: Start, short_directory: Path) -> None:
    whole = Device("n1", 0, "NVIDIA_A100-SXM4-40GB", 40 * GIB)
    devices = list(instances(whole, 1, ["3g.20gb", "4g.20gb"], "test"))
    fields = (
        {"index": d.index, "gpu_type": d.gpu_type, "memory_bytes": d.memory_bytes} | mig_member(d) for d in devices
    )
    node = Node(short_directory, list(fields))
    try:
        token = node.grant_of("a", [devices[0].uuid])
        arguments = ("train", "--step-time-s", "0.02", "--memory", "18GiB", "--steps", "10", "--json")
        code, output, errors = ended(emugpu(node.socket, *arguments, token=token))
        assert code == 0, errors
        assert json.loads(output)["profile"]["step_s"] == pytest.approx(0.02 / 0.428)
        variables = {"TOKEN": node.grant_of("c", [devices[0].uuid]), "MANAGER_SOCKET": str(node.socket)}
        variables["VISIBLE_DEVICES"] = devices[0].uuid
        with contextlib.closing(gpu.Session({f"EMUGPU_{name}": value for name, value in variables.items()})) as own:
            stream = own.device().stream()
            stream.launch(0.01)
            first = stream.record()
            stream.launch(0.02)
            assert first.elapsed_s(stream.record()) == pytest.approx(0.02 / 0.428, abs=1e-8)
        token = node.grant_of("b", [devices[1].uuid])
        assert ended(emugpu(node.socket, "smi", "-L", token=token))[1] == (
            f"GPU 0: NVIDIA_A100-SXM4-40GB (UUID: {whole.uuid})\n  MIG 4g.20gb     Device  0: (UUID: {devices[1].uuid})\n"
        )
        arguments = ("train", "--step-time-s", "0.01", "--memory", "19GiB", "--steps", "5")
        code, _, errors = ended(emugpu(node.socket, *arguments, token=token))
        assert (code, "OutOfMemoryError: CUDA out of memory" in errors) == (1, True)
    finally:
        node.kill()


def test_sharing_instances_is_refused_when_the_manager_starts(short_directory: Path) -> None:
    part = {
        "index": 1,
        "gpu_type": "NVIDIA_A100-SXM4-40GB-MIG-3g.20gb",
        "memory_bytes": GIB,
        "mig": {"gpu": 0, "start": 0},
    }
    node = Node(short_directory, [part], SHARING="fair")
    _, errors = node.process.communicate(timeout=ENDED_S)
    assert "EMUGPU_MANAGER_SHARING: must be exclusive, not fair" in errors and node.process.returncode


def test_a_token_that_was_never_granted(emugpu: Start, node: Node) -> None:
    node.grant("a", 0)
    code, _, errors = ended(emugpu(node.socket, *train(), token="stolen"))
    assert code == 1
    assert errors.startswith("emugpu train: ")
    assert "token" in errors


def test_elastic_jobs_that_share_a_device_do_every_sample_once(emugpu: Start, short_directory: Path) -> None:
    """There, demands are numbered by samples, which grow by more than one."""
    node = Node(short_directory, TWO_GPUS[:1], SHARING="fifo")
    try:
        jobs = [emugpu(node.socket, *elastic(), token=node.grant(name, 0), EMUGPU_BATCH_SIZE="64") for name in "ab"]
        for name, job in zip("ab", jobs, strict=True):
            code, output, errors = ended(job)
            assert (code, json.loads(output)["steps_run"]) == (0, 94), errors
            assert node.covered(name) == 6000
    finally:
        node.kill()
