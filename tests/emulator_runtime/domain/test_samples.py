"""Each sample of a job is in exactly one step, whatever the batch sizes of its runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.samples import RunSamples


def test_the_example_of_the_docstring():
    first, rest = RunSamples(0, 0, 256, 1000), RunSamples(2, 512, 128, 1000)
    assert (first.steps, first.done(2)) == (4, 512)
    assert (rest.steps, [rest.done(steps) for steps in range(2, 7)]) == (6, [512, 640, 768, 896, 1000])


@given(total=st.integers(1, 10_000), runs=st.lists(st.tuples(st.integers(1, 700), st.integers(0, 30)), max_size=20))
def test_no_sample_is_lost_or_repeated(total, runs):
    """Each run has a batch size and is stopped after some steps; a last run goes on to the end."""
    seen, steps = 0, 0
    for batch_size, wanted in [*runs, (7, total)]:
        run = RunSamples(steps, seen, batch_size, total)
        assert (run.done(steps), run.done(run.steps)) == (seen, total)
        assert run.done(run.steps - 1) < total or seen == total
        while steps < min(run.steps, run.first_step + wanted):
            steps += 1
            assert run.done(steps) - seen in ({batch_size} if steps < run.steps else range(1, batch_size + 1))
            seen = run.done(steps)
        if steps == run.steps:
            break
    assert seen == total


@given(
    first=st.integers(0, 50),
    sample=st.integers(0, 999),
    batch_size=st.integers(1, 700),
    steps=st.integers(0, 1000),
    part=st.integers(0, 699),
)
def test_steps_at_is_the_inverse_of_done(first, sample, batch_size, steps, part):
    """Of a step that is half done, the samples don't make a step."""
    run = RunSamples(first, sample, batch_size, 1000)
    steps = min(first + steps, run.steps)
    assert run.steps_at(run.done(steps)) == steps
    between = run.done(steps) + part % batch_size
    if between < run.total and steps < run.steps - 1:
        assert run.steps_at(between) == steps


def test_a_job_of_steps_is_one_of_a_sample_in_each():
    run = RunSamples(7, 7, 1, 100)
    assert (run.steps, run.done(40), run.steps_at(40), run.steps_at(3)) == (100, 40, 40, 3)
