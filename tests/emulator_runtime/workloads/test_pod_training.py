"""A run in a pod against fakes in manual time: its first step, its counts, and its end."""

import signal

import pytest

from emulator_runtime.domain.errors import (
    ClusterError,
    ManagerUnavailableError,
    OutOfMemoryError,
    RefusedError,
)
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.clocks import ManualClock
from emulator_runtime.workloads.pod_training import Dependencies, PodTraining
from emulator_runtime.workloads.ranks.group import Alone, Crossing, Start
from emulator_runtime.workloads.step_costs.request import TrainRequest
from emulator_runtime.workloads.stopping import StopNow, StopSwitch
from tests.support.fake_manager import FakeManager

MS, S = 1_000_000, 1_000_000_000


class Observer:
    """An observer that records its calls; `at` is called with each step's number."""

    def __init__(self, at=lambda step: None):
        self.at, self.records, self.plans, self.shares, self.waits = at, [], [], [], 0

    def planned(self, start, devices, plan):
        self.plans.append((start, devices, plan))

    def stepped(self, record):
        self.records.append(record)
        self.at(record.step)

    def share_changed(self, step, host, plan):
        self.shares.append((step, host, plan.step_s, plan.input_s))

    def waiting(self, now_ns):
        self.waits += 1
        self.at(None)


class Ranks(Alone):
    """Another rank that is `late_ns` later with each step; `first`: its progress; `errors`: raised by the call named so."""

    nodes, rank = 2, 1

    def __init__(self, first=0, late_ns=0, stop_at=None, errors=None):
        self.first, self.late_ns, self.stop_at, self.errors, self.calls = first, late_ns, stop_at, errors or {}, []

    def join(self, progress, gpus, secret=""):
        assert secret == "secret of the job"
        self._note("join", progress, gpus)
        return Start(min(progress, self.first), gpus + 1)

    def barrier(self, steps_done, end_ns, *, stop):
        self._note("barrier", steps_done)
        return Crossing(end_ns + self.late_ns, "rank 0" if steps_done == self.stop_at else "")

    def check(self):
        self._note("check")

    def farewell(self):
        self._note("farewell")

    def leave(self, reason):
        self._note("leave", reason)

    def _note(self, name, *arguments):
        self.calls.append((name, *arguments))
        if name in self.errors:
            raise self.errors[name]


def training(
    manager, *, request=None, steps=4, step_time_s=0.1, group=None, clock=None, stop=None, observer=None, **fields
):
    clock = clock or ManualClock()
    around = Dependencies(
        connect=lambda patience_s: manager,
        clock=clock,
        group=group or Alone(),
        stop=stop or StopSwitch(clock.now_ns),
        observer=observer or Observer(),
        profiles=ProfileTable.bundled(),
        linked=lambda uuids: True,
    )
    return PodTraining(request or TrainRequest(steps=steps, step_time_s=step_time_s, memory_bytes=10, **fields), around)


def names(manager):
    return [call[0] for call in manager.calls]


def test_it_goes_on_where_the_manager_says():
    manager, observer = FakeManager(steps_done=2), Observer()
    outcome = training(manager, observer=observer).run()
    assert outcome.finished
    assert manager.calls[:2] == [("attach", None), ("reserve", 10, 10)]
    assert [call[1] for call in manager.calls if call[0] == "lease"] == [2, 3]
    assert manager.calls[-1] == ("finish", 4)
    assert [(r.step, r.start_ns, r.end_ns) for r in observer.records] == [(2, 0, 100 * MS), (3, 100 * MS, 200 * MS)]


@pytest.mark.parametrize("steps_done", [4, 9])
def test_a_job_that_is_done_finishes_at_once(steps_done):
    manager = FakeManager(steps_done=steps_done)
    assert training(manager).run().finished
    assert "lease" not in names(manager)
    assert manager.calls[-1] == ("finish", 4)


def test_lag_is_reported_and_does_not_add_up():
    manager, lags = FakeManager(), iter([3 * MS, 50 * MS, 0, 7 * MS])
    run = training(manager, clock=ManualClock(oversleep=lambda: next(lags)))
    run.run()
    assert [lease.end_ns for lease in manager.leases] == [100 * MS * n for n in range(1, 5)]
    assert (run.lags.count, run.lags.max_ns) == (4, 50 * MS)
    assert run.seen.total_s == pytest.approx(0.407)


def test_the_input_pipeline_can_be_the_slower_one():
    manager = FakeManager()
    training(manager, input_cpu_s=0.3, host=HostShare(2000)).run()
    assert [lease.end_ns for lease in manager.leases] == [150 * MS * n + 100 * MS for n in range(1, 5)]


SENSITIVE = Sensitivity(cpu=((3000, 1.0), (6000, 2.0)), memory=())
SMALL, LARGE = HostShare(3000, 1), HostShare(6000, 1)


def test_another_share_of_the_node_counts_from_the_next_step_on():
    manager, observer = FakeManager(shares={2: LARGE}), Observer()
    run = training(manager, observer=observer, sensitivity=SENSITIVE, host=SMALL)
    assert run.run().finished
    assert [lease.end_ns for lease in manager.leases] == [100 * MS, 200 * MS, 250 * MS, 300 * MS]
    assert observer.shares == [(2, LARGE, 0.05, 0.0)]
    assert (run.plan.step_s, run.pace_s) == (0.05, pytest.approx(0.075))


def test_what_was_given_at_the_start_counts_from_the_first_step_on():
    manager, observer = FakeManager(shares={0: LARGE}), Observer()
    run = training(manager, observer=observer, sensitivity=SENSITIVE, host=SMALL)
    assert run.run().finished
    assert [lease.end_ns for lease in manager.leases] == [50 * MS * n for n in range(1, 5)]
    assert (observer.shares, run.pace_s) == ([], None)


def test_the_same_share_again_changes_nothing():
    manager, observer = FakeManager(shares={1: SMALL, 2: HostShare(0, 0)}), Observer()
    training(manager, observer=observer, sensitivity=SENSITIVE, host=SMALL).run()
    assert manager.leases[-1].end_ns == 400 * MS
    assert observer.shares == []


def test_work_that_is_not_sensitive_does_not_look_at_its_share():
    manager, observer = FakeManager(shares={1: LARGE}), Observer()
    training(manager, observer=observer, host=SMALL).run()
    assert manager.leases[-1].end_ns == 400 * MS
    assert observer.shares == []


def test_the_input_pipeline_gets_the_cpus_of_the_share():
    manager = FakeManager(shares={2: HostShare(6000, 1)})
    training(manager, input_cpu_s=0.6, host=SMALL).run()
    ends = [lease.end_ns for lease in manager.leases]
    assert ends[:2] == [300 * MS, 500 * MS]  # 200 ms for each input
    assert ends[2:] == [700 * MS, 800 * MS]  # the third was in the making; then 100 ms


def test_ranks_wait_for_the_last_one():
    manager, group = FakeManager(), Ranks(late_ns=30 * MS)
    assert training(manager, group=group).run().finished
    assert [lease.end_ns - lease.start_ns for lease in manager.leases] == [100 * MS] * 4
    assert [lease.end_ns for lease in manager.leases] == [130 * MS * n for n in range(1, 5)]
    assert [call for call in group.calls if call[0] == "barrier"] == [("barrier", n) for n in range(5)]
    assert group.calls[-1] == ("farewell",)


def test_ranks_issue_steps_when_the_inputs_of_all_are_ready():
    """The other rank is 5 ms later with its input and its exchange of each step."""
    manager, group = FakeManager(), Ranks(late_ns=5 * MS)
    training(manager, group=group, steps=2, stages=StageTimes(20 * MS, 0, 10 * MS)).run()
    # all begin at 5 ms; fetched at 25, by all at 30; computed at 130, exchanged at 140, by all at 145; the next input at 150
    assert [(lease.start_ns, lease.end_ns) for lease in manager.leases] == [(30 * MS, 130 * MS), (150 * MS, 250 * MS)]
    assert [call[1] for call in group.calls if call[0] == "barrier"] == [0, 0, 1, 1, 2]


def test_a_rank_that_is_ahead_does_steps_again():
    manager = FakeManager(steps_done=3)
    training(manager, group=Ranks(first=1)).run()
    assert manager.calls[:2] == [("attach", None), ("attach", 1)]
    assert [call[1] for call in manager.calls if call[0] == "lease"] == [1, 2, 3]


def test_a_rank_that_is_done_does_not_wait_for_ranks_that_are_gone():
    manager = FakeManager(steps_done=4)
    assert training(manager, group=Ranks(errors={"join": ClusterError("nobody came")})).run().finished
    manager = FakeManager(steps_done=3)
    with pytest.raises(ClusterError, match="nobody came"):
        training(manager, group=Ranks(errors={"join": ClusterError("nobody came")})).run()


def test_a_step_is_not_counted_when_a_rank_is_gone():
    manager, observer = FakeManager(), Observer()
    group = Ranks()
    group.barrier = lambda done, end_ns, *, stop: Crossing(end_ns) if done < 2 else group.farewell()
    group.errors["farewell"] = ClusterError("rank 0 is gone")
    run = training(manager, group=group, observer=observer)
    with pytest.raises(ClusterError, match="rank 0 is gone"):
        run.run()
    assert [record.step for record in observer.records] == [0]
    assert run.steps_done == 1
    assert "finish" not in names(manager)
    assert group.calls[-1] == ("leave", "rank 0 is gone")


def test_a_finished_rank_fails_where_the_others_can_not_be_told():
    with pytest.raises(ClusterError, match="away"):
        training(FakeManager(), group=Ranks(errors={"farewell": ClusterError("away")})).run()


def test_a_signal_stops_after_the_current_step():
    manager, clock = FakeManager(), ManualClock()
    stop = StopSwitch(clock.now_ns)
    observer = Observer(lambda step: stop.turn(signal.SIGTERM) if step == 1 else None)
    outcome = training(manager, clock=clock, stop=stop, observer=observer).run()
    assert (outcome.finished, outcome.steps_done) == (False, 3)
    assert manager.calls[-2:] == [("attach", 3), ("release", 3)]


def test_a_signal_after_the_last_step_changes_nothing():
    manager, stop = FakeManager(), StopSwitch(lambda: 0)
    observer = Observer(lambda step: stop.turn(signal.SIGTERM) if step == 3 else None)
    assert training(manager, stop=stop, observer=observer).run().finished


def test_a_long_step_is_left_at_once():
    manager, clock = FakeManager(), ManualClock()
    stop = StopSwitch(clock.now_ns)
    group = Ranks()
    observer = Observer(lambda step: stop.turn(signal.SIGTERM))
    outcome = training(manager, clock=clock, stop=stop, observer=observer, step_time_s=60.0, group=group).run()
    assert (outcome.finished, outcome.steps_done) == (False, 0)
    assert clock.now_ns() < 2 * S
    assert ("leave", "rank 1 was told to stop") in group.calls
    assert manager.calls[-1] == ("release", 0)


def test_another_rank_may_want_to_stop():
    manager = FakeManager()
    outcome = training(manager, group=Ranks(stop_at=2)).run()
    assert (outcome.finished, outcome.steps_done, outcome.stopped_by) == (False, 2, "rank 0")
    assert manager.calls[-1] == ("release", 2)


def test_the_manager_may_want_it_to_stop():
    manager, group = FakeManager(stop_at=2), Ranks()
    outcome = training(manager, group=group).run()
    assert (outcome.steps_done, outcome.stopped_by) == (2, "the sharing manager")
    assert group.calls[-1] == ("leave", "the sharing manager told rank 1 to stop")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("attach", RefusedError("unknown token")),
        ("reserve", OutOfMemoryError("full")),
        ("lease", ManagerUnavailableError("away")),
        ("finish", RefusedError("the grant has ended")),
    ],
)
def test_an_error_ends_the_run_and_the_other_ranks_but_not_the_grant(call, error):
    manager, group = FakeManager(errors={call: error}), Ranks()
    with pytest.raises(type(error), match=str(error)):
        training(manager, group=group).run()
    assert group.calls[-1] == ("leave", str(error))
    assert not {"release", "fail"} & set(names(manager))


def test_a_stop_whose_release_nobody_hears_is_a_stop_all_the_same():
    manager, stop = FakeManager(errors={"release": ManagerUnavailableError("away")}), StopSwitch(lambda: 0)
    observer = Observer(lambda step: stop.turn(signal.SIGTERM) if step == 0 else None)
    outcome = training(manager, stop=stop, observer=observer).run()
    assert (outcome.finished, outcome.steps_done) == (False, 2)


def test_ranks_that_were_all_told_to_stop_do_not_blame_each_other():
    manager, clock = FakeManager(), ManualClock()
    stop = StopSwitch(clock.now_ns)
    group = Ranks()
    group.barrier = lambda done, end_ns, *, stop: Crossing(end_ns) if done < 2 else group.farewell()
    group.errors["farewell"] = ClusterError("rank 0 was told to stop")
    observer = Observer(lambda step: stop.turn(signal.SIGTERM))
    outcome = training(manager, clock=clock, group=group, stop=stop, observer=observer).run()
    assert (outcome.finished, outcome.steps_done) == (False, 1)


def test_two_devices_make_one_plan():
    devices = tuple(AttachedDevice(f"GPU-{n}", n, "Tesla_V100-PCIE-32GB", 2**35) for n in range(2))
    observer = Observer()
    run = training(FakeManager(devices=devices), observer=observer)
    run.run()
    ((start, told, plan),) = observer.plans
    assert (start, told, plan) == (Start(0, 2), devices, run.plan)


class TestStopSwitch:
    def test_it_interrupts_only_where_it_may(self):
        now = [0]
        stop = StopSwitch(lambda: now[0])
        stop.interrupt()
        with pytest.raises(StopNow), stop.interruptible():
            stop.interrupt()
        stop.interrupt()

    def test_it_has_patience(self):
        now = [0]
        stop = StopSwitch(lambda: now[0])
        stop.check()
        stop.turn(signal.SIGTERM)
        stop.turn(signal.SIGINT)
        assert stop.signal == signal.SIGTERM
        stop.check()
        with stop.interruptible():
            pass
        now[0] = 2 * S
        with pytest.raises(StopNow):
            stop.check()
        with pytest.raises(StopNow), stop.interruptible():
            raise AssertionError("not reached")


# --- a job that counts samples ---------------------------------------------------------------------------------------------


V100 = "Tesla_V100-PCIE-32GB"


def gpus(number):
    return tuple(AttachedDevice(f"GPU-{n}", n, V100, 32 << 30) for n in range(number))


def elastic(manager, *, batch_size=256, samples=1000, **more):
    request = TrainRequest(-(-samples // batch_size), "resnet50", batch_size, samples=samples)
    return training(manager, request=request, **more)


def test_a_run_with_another_batch_size_goes_on_at_the_sample():
    """After 2 steps of 256, the other 488 samples are 3 steps of 128 and one of 104."""
    manager, observer = FakeManager(steps_done=512, devices=gpus(2)), Observer()
    outcome = elastic(manager, batch_size=128, observer=observer).run()
    assert (outcome.finished, outcome.steps_done) == (True, 1000)
    assert [call[1] for call in manager.calls if call[0] == "lease"] == [512, 640, 768, 896]
    assert manager.calls[-1] == ("finish", 1000)
    assert [record.step for record in observer.records] == [4, 5, 6, 7]
    lengths = {lease.end_ns - lease.start_ns for lease in manager.leases}
    assert len(lengths) == 1, "the last step has fewer samples, and takes as long as a full one"


def test_a_stop_keeps_whole_steps_of_samples():
    manager = FakeManager(stop_at=512, devices=gpus(2))
    outcome = elastic(manager).run()
    assert (outcome.finished, outcome.steps_done) == (False, 512)
    assert manager.calls[-2:] == [("attach", 512), ("release", 512)]


def test_samples_that_no_number_of_steps_has_done_are_gone_on_from():
    """A manager's answer after runs with other batches: 300 samples aren't a multiple of 256."""
    manager = FakeManager(steps_done=300, devices=gpus(2))
    assert elastic(manager).run().steps_done == 1000
    assert [call[1] for call in manager.calls if call[0] == "lease"] == [300, 556, 812]


@pytest.mark.parametrize("claimed", [1000, 5000])
def test_more_samples_than_the_job_has_are_all_of_them(claimed):
    manager = FakeManager(steps_done=claimed)
    assert elastic(manager).run().finished
    assert "lease" not in names(manager)
    assert manager.calls[-1] == ("finish", 1000)


def test_ranks_begin_with_the_least_of_their_samples():
    manager, ranks = FakeManager(steps_done=768, devices=gpus(1)), Ranks(first=512)
    assert elastic(manager, batch_size=128, group=ranks).run().finished
    assert ("join", 768, 1) in ranks.calls
    assert ("attach", 512) in manager.calls
    assert [call for call in ranks.calls if call[0] == "barrier"] == [("barrier", step) for step in (4, 5, 6, 7, 8)]


def test_gpus_among_which_a_batch_is_not_divisible_are_paced_by_those_with_more():
    profiles = ProfileTable.bundled()
    three = elastic(FakeManager(devices=gpus(3)))
    three.run()
    assert three.plan.batch_per_gpu == 86  # of 256
    assert three.plan.peak_bytes == profiles.step_profile("resnet50", V100, 86).peak_bytes
