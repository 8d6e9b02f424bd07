from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.interface.estimates import ErrorEstimates, parse_estimates
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import JobView
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view


class Table:
    """A truth: seconds by configuration."""

    def __init__(self, **seconds):
        self.seconds = seconds

    def duration_s(self, job_id, configuration, gpu_type):
        return self.seconds[configuration] * (2 if gpu_type == "slow" else 1)

    def rate(self, job_id, allocation):
        return 100 / self.duration_s(job_id, allocation.configuration, allocation.gpu_type)


TRUTH = Table(gpu=10.0, cpu=40.0)


def job(job_id="a", steps=100) -> JobView:
    view = cluster_view([Node("n1", gpus=1)], [Job(job_id, gpu_s=1, cpu_s=1, steps=steps)])
    return view.jobs[job_id]


def on(gpu_type):
    shares = (DeviceShare("d", gpu_type),) if gpu_type else ()
    return Allocation("gpu" if gpu_type else "cpu", (TaskPlacement("n1", shares, 1000),))


def test_the_oracle_knows_the_truth():
    oracle = parse_estimates("oracle", TRUTH, seed=1)
    assert oracle.available
    assert oracle.duration_s(job(), "gpu") == 10.0
    assert oracle.duration_s(job(), "gpu", "slow") == 20.0
    assert oracle.rate(job(), on("slow")) == 100 / 20.0
    assert oracle.rate(job(), on(None)) == 100 / 40.0


def test_an_error_is_drawn_once_per_job_configuration_and_seed():
    one = parse_estimates("error:0.5", TRUTH, seed=1)
    again = parse_estimates("error:0.5", TRUTH, seed=1)
    other = parse_estimates("error:0.5", TRUTH, seed=2)
    first = one.duration_s(job("a"), "gpu")
    assert first not in (10.0, one.duration_s(job("b"), "gpu"), other.duration_s(job("a"), "gpu"))
    again.duration_s(job("b"), "gpu")  # the order of questions doesn't matter
    assert again.duration_s(job("a"), "gpu") == first
    assert one.duration_s(job("a"), "cpu") / 40.0 != first / 10.0


def test_an_error_is_the_same_share_on_each_gpu_type_and_in_the_rate():
    estimates = parse_estimates("error:0.5", TRUTH, seed=1)
    seconds = estimates.duration_s(job(), "gpu")
    assert estimates.duration_s(job(), "gpu", "slow") == pytest.approx(2 * seconds)
    assert estimates.rate(job(), on("fast")) == pytest.approx(100 / seconds)


def test_errors_have_the_spread_that_was_asked_for():
    estimates = parse_estimates("error:0.2", TRUTH, seed=3)
    errors = [estimates.duration_s(job(f"j{i}"), "gpu") / 10 - 1 for i in range(1000)]
    assert statistics.mean(errors) == pytest.approx(0.0, abs=0.02)
    assert statistics.stdev(errors) == pytest.approx(0.2, rel=0.1)


@settings(deadline=None)
@given(job_id=st.text(max_size=5), sigma=st.floats(0, 9.99), seed=st.integers())
def test_an_estimate_is_never_below_a_hundredth_nor_twice_the_truth(job_id, sigma, seed):
    seconds = ErrorEstimates(TRUTH, sigma, seed).duration_s(job(job_id), "gpu")
    assert 0.0999 <= seconds <= 19.91


def test_no_estimates_refuse_with_a_sentence_that_helps():
    none = parse_estimates("none", TRUTH, seed=1)
    assert not none.available
    with pytest.raises(PolicyError, match=r"asks for job durations.*use --estimates oracle or error:0.2"):
        none.duration_s(job(), "gpu")
    with pytest.raises(PolicyError, match=r"asks for job speeds.*use --estimates oracle or error:0.2"):
        none.rate(job(), on("fast"))


@pytest.mark.parametrize(
    "text", ["", "orakel", "error", "error:", "error:x", "error:-1", "error:nan", "error:inf", "oracle:1", "none:0"]
)
def test_any_other_text_is_refused(text):
    with pytest.raises(InputError, match=r"--estimates: .* is none of oracle, none, error:SIGMA"):
        parse_estimates(text, TRUTH, seed=1)


def test_policies_never_see_the_truth_under_error(simulate):
    seen = {}

    class Spy:
        needs_estimates = True

        def __init__(self):
            self.inner = resolve_policy("sjf")[1]

        def plan(self, view):
            for each in view.queued():
                seen[each.job_id] = (view.remaining_s(each, "gpu"), view.estimates.duration_s(each, "gpu"))
                assert not hasattr(each, "work")
            return self.inner.plan(view)

    jobs = [Job(f"j{i}", gpu_s=10 + i, steps=10) for i in range(8)]
    run = simulate(Spy(), [Node("n1", gpus=1)], jobs, estimates="error:0.5", seed=7)
    truth = {each.job_id: each.gpu_s for each in jobs}
    assert all(whole != truth[name] and left == whole for name, (left, whole) in seen.items())
    by_start = sorted(run.records, key=lambda name: run.records[name].start_s or 0.0)
    assert by_start == sorted(seen, key=lambda name: seen[name][1])
    assert by_start != list(truth)  # the truth would have given this order
    for name, record in run.records.items():  # what really happens isn't touched
        assert record.start_s is not None
        assert record.finish_s - record.start_s == pytest.approx(truth[name])
