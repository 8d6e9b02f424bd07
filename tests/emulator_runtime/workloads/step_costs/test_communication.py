"""What gradients cost: the ring's time, what of it the backward pass hides, and how many bytes there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.units import MIB
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.communication import BUCKET_BYTES, Links, all_reduce_s, exposed_s

PARAMETERS = {
    "alexnet": 61_100_840, "densenet121": 7_978_856, "densenet161": 28_681_000, "densenet169": 14_149_480,
    "densenet201": 20_013_928, "mnasnet0_5": 2_218_512, "mnasnet0_75": 3_170_208, "mnasnet1_0": 4_383_312,
    "mnasnet1_3": 6_282_256, "mobilenet_v2": 3_504_872, "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856, "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032,
    "resnet101": 44_549_160, "resnet152": 60_192_808, "resnext50_32x4d": 25_028_904, "resnext101_32x8d": 88_791_336,
    "shufflenet_v2_x0_5": 1_366_792, "shufflenet_v2_x1_0": 2_278_604, "shufflenet_v2_x1_5": 3_503_624,
    "shufflenet_v2_x2_0": 7_393_996, "squeezenet1_0": 1_248_424, "squeezenet1_1": 1_235_496, "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840, "vgg13": 133_047_848, "vgg13_bn": 133_053_736, "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992, "vgg19": 143_667_240, "vgg19_bn": 143_678_248, "wide_resnet50_2": 68_883_240,
    "wide_resnet101_2": 126_886_696, "googlenet": 6_624_904,
}  # fmt: skip
"""num_params of each model in torchvision's documentation (pytorch.org/vision/stable/models.html)."""


def links(gpus=4, nodes=1, peer=300e9, network=1.25e9):
    return Links(gpus, nodes, peer, network)


@pytest.mark.parametrize("model", PARAMETERS)
def test_gradient_bytes_are_the_documented_parameters(model):
    ratio = ProfileTable.bundled().gradient_bytes(model) / (4 * PARAMETERS[model])
    assert 1 <= ratio < (1.35 if model == "googlenet" else 1.022)


def test_every_bundled_model_was_compared():
    assert set(PARAMETERS) == set(ProfileTable.bundled().models)


def test_a_ring_sends_twice_the_gradients_less_one_share():
    assert all_reduce_s(400_000_000, links(gpus=4)) == pytest.approx(2 * 3 / 4 * 0.4 / 300)
    assert all_reduce_s(400_000_000, links(gpus=1)) == 0


def test_the_narrowest_link_counts():
    assert links(nodes=1).slowest_bytes_per_s == 300e9
    assert links(gpus=8, nodes=2).slowest_bytes_per_s == 1.25e9
    assert links(gpus=8, nodes=2, peer=1e9).slowest_bytes_per_s == 1e9
    assert links(gpus=2, nodes=2, peer=1e9).slowest_bytes_per_s == 1.25e9


@given(backward=st.floats(0.001, 10), reduce=st.floats(0.001, 10), gradients=st.integers(1, 1000 * MIB))
def test_overlap_hides_at_most_what_it_can(backward, reduce, gradients):
    exposed = exposed_s(reduce, backward, gradients, overlap=True)
    buckets = -(-gradients // BUCKET_BYTES)
    assert reduce / buckets * 0.999 <= exposed <= reduce * 1.001
    assert backward + exposed >= reduce * 0.999
    assert exposed_s(reduce, backward, gradients, overlap=False) == reduce


@given(backward=st.floats(0.01, 10), reduce=st.floats(0.01, 10), buckets=st.integers(1, 40))
def test_the_closed_form_is_what_a_queue_of_buckets_does(backward, reduce, buckets):
    free = 0.0
    for bucket in range(1, buckets + 1):
        free = max(free, backward * bucket / buckets) + reduce / buckets
    assert backward + exposed_s(reduce, backward, buckets * BUCKET_BYTES, overlap=True) == pytest.approx(free)


def test_one_gpu_talks_to_nobody():
    assert exposed_s(0.0, 1.0, 10**9, overlap=True) == 0
