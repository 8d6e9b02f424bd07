"""A training run against a fake manager in manual time: when steps end, where it stops and resumes, how it fails."""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import (
    LateError,
    ManagerUnavailableError,
    OutOfMemoryError,
    RefusedError,
)
from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.units import GIB
from emulator_runtime.timing.clocks import ManualClock
from emulator_runtime.workloads.checkpoint import Checkpoint
from emulator_runtime.workloads.order import RunOrder
from emulator_runtime.workloads.ranks.group import THIS_PROCESS, Crossing
from emulator_runtime.workloads.step_loop import Ended, StepLoop
from emulator_runtime.workloads.training import TrainingRun
from tests.support.fake_manager import FakeManager

V100, K80 = "Tesla_V100-PCIE-32GB", "Tesla_K80"
MS = 1_000_000


@pytest.fixture
def order(tmp_path):
    """Ten steps of 100 ms that begin at 50 ms."""
    return RunOrder(
        manager=tmp_path / "sock",
        token="t",
        job_id="job-1",
        steps=10,
        work=TimedWork(1.0),
        gpu_type=V100,
        cpu_milli=1000,
        device_memory_bytes=0,
        begin_ns=50 * MS,
        release_ns=7 * MS,
        checkpoint=tmp_path / "job.json",
    )


def ends(manager):
    return [lease.end_ns for lease in manager.leases]


def steps_asked_for(manager):
    return [call[1] for call in manager.calls if call[0] == "lease"]


@given(
    steps=st.integers(1, 40), duration_s=st.floats(0.001, 100), first=st.integers(0, 39), begin=st.integers(0, 10**9)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_steps_end_when_step_times_say(order, steps, duration_s, first, begin):
    first = min(first, steps - 1)
    order = dataclasses.replace(order, steps=steps, work=TimedWork(duration_s), begin_ns=begin)
    Checkpoint(order.checkpoint).save(first)
    manager = FakeManager()
    outcome = TrainingRun(order, ManualClock(), manager).run()
    times = order.step_times(None)
    assert ends(manager) == [begin + times.end_ns(first, n + 1) for n in range(steps - first)]
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("finished", steps, steps - first)
    assert manager.calls[0] == ("attach", first)
    assert manager.calls[-1] == ("finish", steps)
    assert steps_asked_for(manager) == list(range(first, steps))


@given(
    batch_size=st.integers(8, 128),
    input_share=st.floats(0.01, 5),
    cpu_milli=st.integers(100, 8000),
    steps=st.integers(1, 12),
    oversleep=st.integers(0, 50 * MS),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_the_slower_of_input_and_device_sets_the_pace(order, batch_size, input_share, cpu_milli, steps, oversleep):
    order = dataclasses.replace(order, steps=steps, cpu_milli=cpu_milli)
    profiles = dataclasses.replace(order, work=ModelWork("resnet50", batch_size)).profile_table()
    device_s = profiles.step_profile("resnet50", V100, batch_size).device_s
    order = dataclasses.replace(
        order,
        work=ModelWork("resnet50", batch_size, input_share * device_s * cpu_milli / 1000),
        checkpoint=order.checkpoint,
    )
    times, manager = order.step_times(profiles), FakeManager()
    clock = ManualClock(oversleep=lambda: oversleep)
    TrainingRun(order, clock, manager).run()
    assert times.input_ns > 0
    assert ends(manager) == [order.begin_ns + times.end_ns(0, n + 1) for n in range(steps)]


@pytest.mark.parametrize(
    "stages", [StageTimes(30 * MS, 0, 0), StageTimes(80 * MS, 50 * MS, 0), StageTimes(0, 20 * MS, 40 * MS)]
)
def test_stages_that_nobody_shares_are_part_of_the_steps(order, stages):
    order = dataclasses.replace(order, work=TimedWork(1.0, stages=stages))
    times, manager, clock = order.step_times(None), FakeManager(), ManualClock()
    TrainingRun(order, clock, manager).run()
    assert ends(manager) == [order.begin_ns + times.end_ns(0, n + 1) - stages.exchange_ns for n in range(10)]
    assert clock.now_ns() == order.begin_ns + times.end_ns(0, 10)


def test_lag_is_reported_and_does_not_add_up(order):
    lags = iter([3 * MS, 90 * MS, 0, 250 * MS, *[1] * 20])
    manager, clock = FakeManager(), ManualClock(oversleep=lambda: next(lags))
    run = TrainingRun(order, clock, manager)
    run.run()
    assert ends(manager) == [order.begin_ns + 100 * MS * n for n in range(1, 11)]
    assert run.lags.count == 10
    assert run.lags.max_ns == 250 * MS
    assert run.start_lag_ns == 0


def test_a_late_start_is_real(order):
    manager, clock = FakeManager(), ManualClock(now_ns=81 * MS)
    run = TrainingRun(order, clock, manager)
    run.run()
    assert run.start_lag_ns == 31 * MS
    assert ends(manager)[0] == 181 * MS
    assert ends(manager)[-1] == 1_081 * MS


def test_time_of_others_on_the_device_is_waited_for(order):
    manager = FakeManager(busy_ns=30 * MS)
    run = TrainingRun(order, ManualClock(), manager)
    run.run()
    assert ends(manager) == [order.begin_ns + 130 * MS * n for n in range(1, 11)]
    assert run.lags.max_ns == 0


def test_stop_before_the_first_step(order):
    manager, clock = FakeManager(stop_at=0), ManualClock()
    outcome = TrainingRun(order, clock, manager).run()
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("stopped", 0, 0)
    assert manager.calls[-1] == ("release", 0)
    assert clock.now_ns() == order.begin_ns + order.release_ns
    assert Checkpoint(order.checkpoint).load() == 0


def test_stop_in_the_middle_then_resume_on_another_device(order):
    work = ModelWork("resnet50", 32)
    order = dataclasses.replace(order, work=work)
    manager, clock = FakeManager(stop_at=4), ManualClock()
    outcome = TrainingRun(order, clock, manager).run()
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("stopped", 4, 4)
    assert manager.calls[-1] == ("release", 4)
    assert clock.now_ns() == ends(manager)[-1] + order.release_ns
    assert Checkpoint(order.checkpoint).load() == 4

    begin = clock.now_ns() + 300 * MS
    elsewhere, slower = FakeManager(), dataclasses.replace(order, gpu_type=K80, begin_ns=begin)
    outcome = TrainingRun(slower, clock, elsewhere).run()
    times = slower.step_times(slower.profile_table())
    assert times.total_device_ns > order.step_times(order.profile_table()).total_device_ns
    assert ends(elsewhere) == [begin + times.end_ns(4, n + 1) for n in range(6)]
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("finished", 10, 6)
    assert steps_asked_for(manager)[:-1] + steps_asked_for(elsewhere) == list(range(10))


def test_it_goes_on_with_other_batches_where_it_was(order):
    """10 steps of 256 samples: after 4 of them, 12 of 128 and none twice; the checkpoint counts samples."""
    order = dataclasses.replace(order, work=ModelWork("resnet50", 64), step_samples=256)
    manager, clock = FakeManager(stop_at=4), ManualClock()
    assert TrainingRun(order, clock, manager).run().steps_done == 4
    assert Checkpoint(order.checkpoint).load() == 1024
    later = dataclasses.replace(
        order, steps=16, first_step=4, first_sample=1024, step_samples=128, begin_ns=clock.now_ns()
    )
    elsewhere = FakeManager(stop_at=9)
    assert TrainingRun(later, clock, elsewhere).run().steps_done == 9
    assert steps_asked_for(elsewhere)[0] == 4
    assert Checkpoint(order.checkpoint).load() == 1024 + 5 * 128
    last = dataclasses.replace(order, steps=13, first_step=9, first_sample=1664, begin_ns=clock.now_ns())  # 896 samples
    outcome = TrainingRun(last, clock, FakeManager()).run()
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("finished", 13, 4)


@pytest.mark.parametrize("samples_done", [0, 512, 1023, 1100])
def test_a_checkpoint_with_samples_that_a_run_would_skip_or_repeat(order, samples_done):
    Checkpoint(order.checkpoint).save(samples_done)
    manager = FakeManager()
    order = dataclasses.replace(order, first_step=4, first_sample=1024, step_samples=128)
    reason = TrainingRun(order, ManualClock(), manager).run().reason
    assert (
        f"{samples_done} samples are done, but step 4 begins with sample 1024 and each step has 128; remove" in reason
    )
    assert [call[0] for call in manager.calls] == ["fail"]


def test_the_checkpoint_is_written_before_the_devices_are_free(order):
    class Watching(FakeManager):
        def release(self, steps_done):
            assert Checkpoint(order.checkpoint).load() == steps_done == 3
            super().release(steps_done)

    manager = Watching(stop_at=3)
    assert TrainingRun(order, ManualClock(), manager).run().kind == "stopped"
    assert manager.calls[-1] == ("release", 3)


def test_a_stop_from_outside_takes_effect_between_two_steps(order):
    manager, clock = FakeManager(), ManualClock()
    loop = StepLoop(manager, clock.wait_until_ns, asked_to_stop=lambda: len(manager.leases) == 2)
    ended = loop.run(order.step_times(order.profile_table()), 0, Crossing(order.begin_ns))
    assert ended == Ended(2, ends(manager)[1], THIS_PROCESS)
    assert clock.waits[-1] == ended.end_ns


def test_all_steps_were_done_already(order):
    Checkpoint(order.checkpoint).save(10)
    manager = FakeManager()
    outcome = TrainingRun(order, ManualClock(), manager).run()
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("finished", 10, 0)
    assert [call[0] for call in manager.calls] == ["attach", "finish"]


def test_memory_is_reserved_before_the_first_step(order):
    manager = FakeManager()
    TrainingRun(dataclasses.replace(order, device_memory_bytes=3 * GIB), ManualClock(), manager).run()
    assert [call[0] for call in manager.calls[:3]] == ["attach", "reserve", "lease"]
    assert manager.calls[1] == ("reserve", 3 * GIB, 3 * GIB)


FAILURES = {
    "attach": RefusedError("unknown token"),
    "reserve": OutOfMemoryError("out of memory on GPU-0"),
    "lease": RefusedError("the grant has ended"),
}


@pytest.mark.parametrize("call", FAILURES)
def test_a_failure_is_told_to_the_manager(order, call):
    manager = FakeManager(errors=FAILURES)
    manager._errors = {call: FAILURES[call]}
    outcome = TrainingRun(dataclasses.replace(order, device_memory_bytes=1), ManualClock(), manager).run()
    assert (outcome.kind, outcome.reason) == ("failed", str(FAILURES[call]))
    assert manager.calls[-1] == ("fail", str(FAILURES[call]))


def test_the_first_error_is_the_one_that_counts(order):
    manager = FakeManager(errors={"reserve": OutOfMemoryError("full"), "fail": RefusedError("has ended")})
    outcome = TrainingRun(dataclasses.replace(order, device_memory_bytes=1), ManualClock(), manager).run()
    assert outcome.reason == "full"


def test_a_manager_that_stays_away_is_not_a_failure_of_the_job(order):
    manager = FakeManager(errors={"lease": ManagerUnavailableError("away")})
    with pytest.raises(ManagerUnavailableError):
        TrainingRun(order, ManualClock(), manager).run()
    assert manager.calls[-1][0] == "lease"


def test_a_strict_clock_fails_the_run(order):
    class Strict(ManualClock):
        def wait_until_ns(self, deadline_ns):
            raise LateError("9 ms late")

    manager = FakeManager()
    assert TrainingRun(order, Strict(), manager).run().reason == "9 ms late"
    assert manager.calls[-1] == ("fail", "9 ms late")


@pytest.mark.parametrize(
    ("content", "reason"),
    [("nonsense", "is not a checkpoint"), ('{"samples_done": 11}', "11 steps are done, but the job has 10; remove it")],
)
def test_a_checkpoint_that_cannot_be_this_jobs(order, content, reason):
    order.checkpoint.write_text(content)
    manager = FakeManager()
    outcome = TrainingRun(order, ManualClock(), manager).run()
    assert outcome.kind == "failed"
    assert str(order.checkpoint) in outcome.reason
    assert reason in outcome.reason
    assert [call[0] for call in manager.calls] == ["fail"]


def test_a_checkpoint_that_cannot_be_written(order):
    order = dataclasses.replace(order, checkpoint=order.checkpoint.with_name("missing") / "job.json")
    manager = FakeManager(stop_at=1)
    outcome = TrainingRun(order, ManualClock(), manager).run()
    assert outcome.kind == "failed"
    assert "can't write the checkpoint" in manager.calls[-1][1]


def test_work_without_a_profile_fails_before_anything_is_held(order):
    manager = FakeManager()
    outcome = TrainingRun(dataclasses.replace(order, work=ModelWork("resnet51", 32)), ManualClock(), manager).run()
    assert "unknown model 'resnet51'; did you mean resnet50" in outcome.reason
    assert [call[0] for call in manager.calls] == ["fail"]


def test_the_fake_manager_gives_device_time_back_to_back():
    manager = FakeManager()
    assert manager.lease(0, 10, 5) == Lease(5, 15)
    assert manager.lease(1, 10, 7) == Lease(15, 25)
    assert manager.lease(2, 10, 40) == Lease(40, 50)


class SharesAt:
    """New shares of the node, each to be had from its time on."""

    def __init__(self, clock, *shares):
        self.clock, self.shares = clock, list(shares)

    def __call__(self):
        found = None
        while self.shares and self.shares[0][0] <= self.clock.now_ns():
            found = HostShare(*self.shares.pop(0)[1])
        return found


TWICE = Sensitivity(((1000, 1.0), (2000, 2.0)), ())


def test_a_new_share_counts_from_the_next_step_on(order):
    clock, manager = ManualClock(), FakeManager()
    shares = SharesAt(clock, (320 * MS, (2000,)), (580 * MS, (1000,)))
    run = TrainingRun(dataclasses.replace(order, work=TimedWork(1.0, TWICE)), clock, manager, new_share=shares)
    assert run.run().kind == "finished"
    # From 50 ms on: three steps of 100, four of 50 from 350 on (the last issued at 550 is in progress at 580), then 100.
    assert [end // MS for end in ends(manager)] == [150, 250, 350, 400, 450, 500, 550, 600, 700, 800]


def test_a_share_that_comes_before_the_first_step_counts_from_it(order):
    clock, manager = ManualClock(), FakeManager()
    run = TrainingRun(
        dataclasses.replace(order, work=TimedWork(1.0, TWICE)), clock, manager, new_share=SharesAt(clock, (0, (2000,)))
    )
    run.run()
    assert [end // MS for end in ends(manager)] == [100 + 50 * n for n in range(10)]


def test_a_new_share_changes_how_long_inputs_take(order):
    work = ModelWork("resnet50", 32, input_cpu_s=1.0)  # far more than the device needs
    clock, manager = ManualClock(), FakeManager()
    order = dataclasses.replace(order, work=work, device_memory_bytes=GIB, begin_ns=0)
    TrainingRun(order, clock, manager, new_share=SharesAt(clock, (1500 * MS, (4000,)))).run()
    issues = [lease.end_ns - manager.leases[0].end_ns for lease in manager.leases]
    # The second input was in preparation at 1.5 s and keeps its second; from its issue at 2 s on they take a quarter.
    assert [round(at_ns / MS) for at_ns in issues] == [0, 1000, *(1000 + 250 * n for n in range(1, 9))]
