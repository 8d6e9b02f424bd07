"""What a step costs on the devices of a pod: batch per GPU, the slowest type, communication, memory."""

import pytest

from emulator_runtime.domain.errors import BeyondProfileError, InputError, UnknownNameError
from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import GIB, to_ns
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.communication import exposed_s
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step
from emulator_runtime.workloads.step_costs.work import step_times

TABLE = ProfileTable.bundled()
V100, A100, K80 = "Tesla_V100-PCIE-32GB", "NVIDIA_A100-SXM4-40GB", "Tesla_K80"


def plan(layout, **fields):
    return plan_step(TrainRequest(steps=10, **({"model": "resnet50", "batch_size": 64} | fields)), layout, TABLE)


def test_one_gpu_is_the_profile():
    profile, found = TABLE.step_profile("resnet50", V100, 64), plan(Layout((V100,), 1))
    assert (found.step_s, found.exposed_s, found.batch_per_gpu) == (profile.device_s, 0.0, 64)
    assert (found.peak_bytes, found.persistent_bytes) == (profile.peak_bytes, profile.persistent_bytes)
    assert found.times(10).device_ns(0, 10) == 10 * round(profile.device_s * 1e9)


def test_four_gpus_divide_the_batch_and_use_the_peer_link_if_there_is_one():
    gradients = TABLE.gradient_bytes("resnet50")
    linked, apart = plan(Layout((A100,) * 4, 4)), plan(Layout((A100,) * 4, 4, linked=False))
    assert linked.reduce_s == pytest.approx(1.5 * gradients / 300e9)
    assert apart.reduce_s == pytest.approx(1.5 * gradients / 25e9)
    assert linked.step_s == pytest.approx(TABLE.step_profile("resnet50", A100, 16).device_s + linked.reduce_s)


def test_over_nodes_the_network_counts_and_backward_hides_some_of_it():
    profile, gradients = TABLE.step_profile("resnet50", V100, 32), TABLE.gradient_bytes("resnet50")
    found = plan(Layout((V100,), 2, nodes=2), network_gbps=25.0)
    assert found.reduce_s == pytest.approx(gradients / 3.125e9)
    assert found.exposed_s == exposed_s(found.reduce_s, profile.backward_s, gradients, overlap=True)
    assert 0 < found.exposed_s < found.reduce_s
    assert plan(Layout((V100,), 2, nodes=2), parallel="dp").exposed_s == pytest.approx(gradients / 1.25e9)


def test_the_slowest_type_sets_the_pace():
    found = plan(Layout((A100, K80), 2))
    assert found.slowest == K80
    assert found.step_s == pytest.approx(TABLE.step_profile("resnet50", K80, 32).device_s + found.reduce_s)


def test_work_without_a_profile_needs_no_known_type():
    found = plan(Layout(("Lab-GPU",), 1), model="", batch_size=0, step_time_s=0.25, memory_bytes=GIB)
    assert (found.step_s, found.peak_bytes, found.persistent_bytes) == (0.25, GIB, GIB)
    two = Layout(("Lab-GPU",) * 2, 2)
    assert plan(two, model="", batch_size=0, step_time_s=0.25).step_s == 0.25
    with pytest.raises(UnknownNameError, match="the device's type: unknown GPU type 'Lab-GPU'"):
        plan(two, model="", batch_size=0, step_time_s=0.25, gradient_bytes=GIB)


THREE, ONE = f"{A100}-MIG-3g.20gb", f"{A100}-MIG-1g.5gb"


def test_a_step_on_an_instance_takes_longer_by_its_part_of_the_gpu():
    assert plan(Layout((THREE,), 1)).step_s == pytest.approx(plan(Layout((A100,), 1)).step_s / 0.428, rel=1e-12)
    stated = {"model": "", "batch_size": 0, "step_time_s": 0.25, "memory_bytes": GIB, "host_s": 0.1}
    for types, slowest, rate in (((THREE,), THREE, 0.428), ((A100, ONE, THREE), ONE, 0.142)):
        found = plan(Layout(types, len(types)), **stated)
        assert (found.slowest, found.peak_bytes, found.host_s) == (slowest, GIB, 0.1)
        assert found.step_s == pytest.approx(0.25 / rate)


def test_the_simulator_and_a_pod_compute_the_same_for_an_instance():
    host = HostShare(1000)
    stated = step_times(TimedWork(2.5), 10, THREE, host)
    in_a_pod = plan(Layout((THREE,), 1), model="", batch_size=0, step_time_s=0.25).times(10)
    assert abs(stated.total_device_ns - in_a_pod.total_device_ns) <= 10  # a pod rounds each step to nanoseconds
    assert step_times(TimedWork(2.5, host_s=0.1), 10, THREE, host) == StepTimes(
        10, to_ns(1.5) * 1000 // 428, 0, to_ns(0.1)
    )
    assert step_times(ModelWork("resnet50", 64), 10, THREE, host, TABLE) == plan(Layout((THREE,), 1)).times(10)
    assert step_times(TimedWork(2.5), 10, None, host).total_device_ns == to_ns(2.5)


def test_without_a_gpu_a_step_takes_what_was_said():
    timed = {"model": "", "batch_size": 0, "step_time_s": 0.25}
    found = plan(Layout((), 0), **timed)
    assert (found.step_s, found.peak_bytes, found.slowest) == (0.25, 0, "")
    assert plan(Layout((), 0), gradient_bytes=GIB, **timed).step_s == 0.25  # nobody to exchange them with
    assert plan(Layout((), 0, nodes=3), **timed).step_s == 0.25
    ranks = plan(Layout((), 0, nodes=3), gradient_bytes=GIB, parallel="dp", network_gbps=8.0, **timed)
    assert ranks.step_s == pytest.approx(0.25 + 2 * 2 / 3 * GIB / 1e9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {},
            r"--model: a model's profile is of GPUs, and this container has none \(only emugpu.dev/host\); give --step-t",
        ),
        (
            {"model": "", "batch_size": 0, "step_time_s": 1.0, "memory_bytes": GIB},
            "--memory: is memory of a GPU, and this container has none .*; leave it out, or ask for emuGPU",
        ),
    ],
)
def test_what_needs_a_gpu(fields, message):
    with pytest.raises(InputError, match=message):
        plan(Layout((), 0), **fields)


def test_input_is_prepared_on_so_many_cpus():
    assert plan(Layout((V100,), 1), input_cpu_s=0.6, host=HostShare(4000)).input_s == pytest.approx(0.15)


SENSITIVE = Sensitivity(cpu=((3000, 1.0), (6000, 2.0)), memory=((60 * GIB, 1.0), (120 * GIB, 1.5)))


@pytest.mark.parametrize(
    ("cpu_milli", "gigabytes", "step_s"),
    [(3000, 60, 0.3), (6000, 120, 0.2), (6000, 60, 0.3), (1500, 120, 0.6), (9000, 90, 0.24)],
)
def test_the_share_of_the_node_sets_the_pace(cpu_milli, gigabytes, step_s):
    timed = {"model": "", "batch_size": 0, "step_time_s": 0.3, "sensitivity": SENSITIVE}
    share = HostShare(cpu_milli, gigabytes * GIB)
    assert plan(Layout((V100,), 1), host=share, **timed).step_s == pytest.approx(step_s)
    assert plan(Layout((V100,), 1, host=share), **timed).step_s == pytest.approx(step_s)  # what is given goes before


def test_of_an_amount_of_0_nothing_was_said():
    request = TrainRequest(steps=1, step_time_s=1.0, host=HostShare(3000, 60 * GIB), sensitivity=SENSITIVE)
    assert request.share(None) == request.share(HostShare(0, 0)) == HostShare(3000, 60 * GIB)
    assert request.share(HostShare(0, 7)) == HostShare(3000, 7)
    assert request.share(HostShare(500, 0)) == HostShare(500, 60 * GIB)
    assert request.uses_host
    assert not TrainRequest(steps=1, step_time_s=1.0).uses_host
    assert TrainRequest(steps=1, step_time_s=1.0, input_cpu_s=0.1).uses_host


@pytest.mark.parametrize(
    ("fields", "gpus", "error", "message"),
    [
        ({"batch_size": 65}, 2, InputError, r"--batch-size: 65 samples .* among 2 GPUs; give e.g. 64"),
        ({"batch_size": 1}, 2, InputError, r"give e.g. 2"),
        ({"batch_size": 10_000}, 1, BeyondProfileError, r"resnet50 on Tesla_V100-PCIE-32GB was measured"),
        ({"model": "resnet51"}, 1, UnknownNameError, r"unknown model 'resnet51'"),
    ],
)
def test_what_can_not_be_planned(fields, gpus, error, message):
    with pytest.raises(error, match=message):
        plan(Layout((V100,) * gpus, gpus), **fields)


def test_beyond_the_measurements_when_asked():
    assert plan(Layout((V100,), 1), batch_size=300, extrapolate=True).extrapolated
