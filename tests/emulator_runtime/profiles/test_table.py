from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import BeyondProfileError, InputError, UnknownNameError
from emulator_runtime.profiles.bundled import KNOTS_FILE
from emulator_runtime.profiles.table import ProfileTable

TABLE = ProfileTable.bundled()
KNOTS = json.loads(KNOTS_FILE.read_text(encoding="utf-8"))["models"]
PAIRS = st.sampled_from([(model, gpu) for model in TABLE.models for gpu in TABLE.gpu_types_of(model)])


@given(PAIRS, st.data())
def test_gives_back_the_measured_points(pair: tuple[str, str], data: st.DataObject) -> None:
    model, gpu = pair
    columns = KNOTS[model]["gpus"][gpu]
    index = data.draw(st.integers(0, len(columns["batch"]) - 1))
    step = TABLE.step_profile(model, gpu, columns["batch"][index])
    assert step.forward_s == columns["forward_us"][index] / 1e6
    assert step.backward_s == columns["backward_us"][index] / 1e6


@given(PAIRS, st.data())
def test_lies_between_the_neighbouring_knots_inside(pair: tuple[str, str], data: st.DataObject) -> None:
    model, gpu = pair
    columns = KNOTS[model]["gpus"][gpu]
    batch = data.draw(st.integers(1, TABLE.last_measured_batch(model, gpu)))
    step = TABLE.step_profile(model, gpu, batch)
    right = next(i for i, knot in enumerate(columns["batch"]) if knot >= batch)
    left = right if columns["batch"][right] == batch else right - 1
    for seconds, column in ((step.forward_s, "forward_us"), (step.backward_s, "backward_us")):
        around = (columns[column][left], columns[column][right])
        assert min(around) <= seconds * 1e6 * (1 + 1e-12)
        assert seconds * 1e6 <= max(around) * (1 + 1e-12)
    assert 0 < step.persistent_bytes < step.peak_bytes


def test_transfer_is_bytes_over_the_host_link() -> None:
    assert TABLE.step_profile("resnet50", "V100", 64).transfer_s == pytest.approx(64 * 3 * 224 * 224 * 4 / 12e9)


def test_memory_comes_from_the_model_alone() -> None:
    peak, persistent = TABLE.memory("resnet50", 64)
    for gpu in ("K80", "V100", "A100"):
        step = TABLE.step_profile("resnet50", gpu, 64)
        assert (step.peak_bytes, step.persistent_bytes) == (peak, persistent)


@pytest.mark.parametrize("model", TABLE.models)
def test_refuses_and_extrapolates_beyond_the_last_measured_batch(model: str) -> None:
    for gpu in TABLE.gpu_types_of(model):
        last = TABLE.last_measured_batch(model, gpu)
        at_last = TABLE.step_profile(model, gpu, last)
        with pytest.raises(
            BeyondProfileError, match=rf"{model} on {gpu} .* 1 to {last}, not at {last + 1}; .*extrapolate"
        ):
            TABLE.step_profile(model, gpu, last + 1)
        beyond = TABLE.step_profile(model, gpu, 2 * last, extrapolate=True)
        assert beyond.extrapolated
        assert 1.2 < beyond.device_s / at_last.device_s < 2.5
        assert beyond.peak_bytes > at_last.peak_bytes


def test_extrapolation_is_only_flagged_where_it_happens() -> None:
    assert not TABLE.step_profile("resnet50", "V100", 256, extrapolate=True).extrapolated
    assert TABLE.step_profile("resnet50", "V100", 257, extrapolate=True).extrapolated


def test_flags_a_measured_time_whose_memory_was_not_measured_so_far() -> None:
    last = TABLE.last_measured_batch("resnext101_32x8d", "A100")
    assert last > KNOTS["resnext101_32x8d"]["memory"]["batch"][-1]
    assert TABLE.step_profile("resnext101_32x8d", "A100", last).extrapolated
    TABLE.memory("resnext101_32x8d", last)  # it ran there, so it isn't refused
    with pytest.raises(BeyondProfileError, match="resnext101_32x8d's memory"):
        TABLE.memory("resnext101_32x8d", last + 1)
    assert TABLE.memory("resnext101_32x8d", last + 1, extrapolate=True) > TABLE.memory("resnext101_32x8d", last)


def test_an_unknown_model_says_what_comes_nearest() -> None:
    for ask in (
        lambda: TABLE.step_profile("resnet5", "V100", 1),
        lambda: TABLE.memory("resnet5", 1),
        lambda: TABLE.gpu_types_of("resnet5"),
        lambda: TABLE.last_measured_batch("resnet5", "V100"),
    ):
        with pytest.raises(UnknownNameError, match="unknown model 'resnet5'; did you mean resnet50"):
            ask()


def test_an_unknown_gpu_type_is_no_missing_profile() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU type"):
        TABLE.step_profile("resnet50", "Voodoo2", 1)


def test_a_catalogued_type_without_profile_says_which_have_one() -> None:
    with pytest.raises(
        InputError, match=r"resnet50 has no profile on NVIDIA-H100-80GB-HBM3, only on Tesla_K80, .*V100"
    ):
        TABLE.step_profile("resnet50", "H100", 1)


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, "8"])
def test_a_batch_size_is_a_whole_number_of_at_least_one(batch: object) -> None:
    for ask in (TABLE.memory, lambda model, b: TABLE.step_profile(model, "V100", b)):
        with pytest.raises(InputError, match="batch size: must be a whole number of at least 1"):
            ask("resnet50", batch)  # type: ignore[arg-type]


def test_names_are_in_a_fixed_order() -> None:
    assert list(TABLE.models) == sorted(TABLE.models)
    assert TABLE.gpu_types_of("resnet50")[0] == "Tesla_K80"
    assert TABLE.gpu_types_of("resnet50")[-1] == "NVIDIA_A100-SXM4-40GB"
    assert TABLE.measured_batches("resnet50", "K80") == (1, 126)


def test_step_times_of_a_sister_type_stand_in_and_say_so():
    sister = TABLE.step_profile("resnet50", "A100-80GB", 64)
    measured = TABLE.step_profile("resnet50", "A100", 64)
    assert (sister.forward_s, sister.backward_s) == (measured.forward_s, measured.backward_s)
    assert sister.extrapolated
    assert not measured.extrapolated
    assert "NVIDIA-A100-SXM4-80GB" not in TABLE.gpu_types_of("resnet50")


@pytest.mark.parametrize(("gpu", "rate"), [("A100-MIG-3g.20gb", 428), ("A100-80GB-MIG-7g.80gb", 1000)])
def test_an_instance_takes_longer_by_its_part_of_the_gpu(gpu: str, rate: int) -> None:
    whole, part = (TABLE.step_profile("resnet50", name, 64) for name in (gpu.partition("-MIG-")[0], gpu))
    assert part.device_s == pytest.approx(whole.device_s * 1000 / rate, rel=1e-12)
    assert part.extrapolated and part.peak_bytes == whole.peak_bytes


def test_measured_times_of_an_instance_go_before_those_of_the_whole_gpu(tmp_path: Path) -> None:
    knots = [{"batch": 64, "forward_s": 0.5, "backward_s": 1.0}]
    models = {"resnet50": {"gpus": {"A100-MIG-3g.20gb": {"knots": knots}}}}
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps({"models": models}), encoding="utf-8")
    step = TABLE.with_file(path).step_profile("resnet50", "A100-MIG-3g.20gb", 64)
    assert (step.forward_s, step.backward_s, step.extrapolated) == (0.5, 1.0, False)
