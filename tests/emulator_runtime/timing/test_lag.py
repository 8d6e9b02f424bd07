"""The lag account: quantiles within a bucket's 10%, exact extremes, nothing lost when it is sent or merged."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.lag import LagHistogram, upper_edge_ns

lags = st.lists(st.one_of(st.integers(0, 5_000), st.integers(0, 10**9), st.integers(0, 10**13)), min_size=1)


def histogram_of(values) -> LagHistogram:
    histogram = LagHistogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(lags, st.floats(0.001, 1.0))
def test_a_quantile_is_at_most_a_bucket_above_the_true_one(values, share):
    histogram = histogram_of(values)
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    found = histogram.quantile_ns(share)
    assert true <= found * (1 + 1e-9)
    assert found <= max(1_000, true * 10 ** (1 / 24) * (1 + 1e-9)) or true >= 100 * 10**9
    assert found <= histogram.max_ns == max(values)


@given(lags, lags)
def test_merging_is_adding_all(left, right):
    merged = histogram_of(left)
    merged.merge(histogram_of(right))
    assert merged.to_json() == histogram_of(left + right).to_json()
    assert merged.count == len(left) + len(right)
    assert merged.total_ns == sum(left) + sum(right)


@given(lags)
def test_json_keeps_everything(values):
    sent = histogram_of(values)
    received = LagHistogram.from_json(json.loads(json.dumps(sent.to_json())))
    assert received.to_json() == sent.to_json()
    assert received.count == sent.count
    assert received.quantile_ns(0.9) == sent.quantile_ns(0.9)


def test_buckets_are_ten_per_cent_wide_from_one_microsecond_to_a_hundred_seconds():
    assert upper_edge_ns(0) == 1_000
    assert upper_edge_ns(1) / upper_edge_ns(0) == pytest.approx(1.1007, abs=1e-4)
    assert upper_edge_ns(192) == pytest.approx(100e9)
    assert upper_edge_ns(193) == math.inf


def test_empty():
    assert LagHistogram().quantile_ns(0.5) == 0
    assert LagHistogram.from_json(LagHistogram().to_json()).count == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "lags: must be an object, got list"),
        ({}, "lags.buckets: must be an object, got NoneType"),
        ({"buckets": {"200": 1}}, "lags.buckets: no bucket '200'; they are numbered 0 to 193"),
        ({"buckets": {"-1": 1}}, "lags.buckets: no bucket '-1'"),
        ({"buckets": {"3": -1}}, "lags.buckets.3: must be a whole number >= 0, got -1"),
        ({"buckets": {"3": True}}, "lags.buckets.3: must be a whole number >= 0, got True"),
        ({"buckets": {"3": 1}, "total_ns": "x"}, "lags.total_ns: must be a whole number >= 0, got 'x'"),
        ({"buckets": {"3": 1}, "total_ns": 1}, "lags.max_ns: must be a whole number >= 0, got None"),
    ],
)
def test_bad_json_is_named(data, message):
    with pytest.raises(InputError) as caught:
        LagHistogram.from_json(data)
    assert str(caught.value).startswith(message)


def test_adding_is_cheap():
    histogram, start = LagHistogram(), monotonic_ns()
    for lag in range(0, 10_000_000, 1_000):
        histogram.add(lag)
    assert monotonic_ns() - start < 10_000 * 100_000  # 0.1 ms each; measured: 0.4 us
