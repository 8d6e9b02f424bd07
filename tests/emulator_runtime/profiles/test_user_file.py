from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import BeyondProfileError, EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.profiles import user_file
from emulator_runtime.profiles.table import ProfileTable

TABLE = ProfileTable.bundled()
GOOD: dict[str, Any] = {
    "gpus": {"Lab-GPU": {"memory_bytes": 8 * 2**30, "host_link_bytes_per_s": 1e9}},
    "models": {
        "foo": {
            "sample_bytes": 1000,
            "memory": {
                "knots": [
                    {"batch": 4, "peak_bytes": 4000, "persistent_bytes": 100},
                    {"batch": 8, "peak_bytes": 8000, "persistent_bytes": 100},
                ]
            },
            "gpus": {
                "V100": {
                    "knots": [
                        {"batch": 4, "forward_s": 0.1, "backward_s": 0.2},
                        {"batch": 6, "forward_s": 0.2, "backward_s": 0.3},
                        {"batch": 8, "forward_s": 0.4, "backward_s": 0.5},
                    ]
                },
                "Lab-GPU": {"knots": [{"batch": 4, "forward_s": 1, "backward_s": 2}]},
            },
        }
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.json"


def add(file: Path, content: object) -> ProfileTable:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return TABLE.with_file(file)


def test_adds_models_and_gpu_types_to_a_new_table(file: Path) -> None:
    table = add(file, GOOD)
    assert table.gpu_types_of("foo") == ("Tesla_V100-PCIE-32GB", "Lab-GPU")
    step = table.step_profile("foo", "V100", 5)
    assert step.forward_s == pytest.approx(0.15)
    assert step.backward_s == pytest.approx(0.25)
    assert (step.peak_bytes, step.persistent_bytes) == (5000, 100)
    lab = table.step_profile("foo", "lab-gpu", 4)
    assert lab.transfer_s == pytest.approx(4 * 1000 / 1e9)
    spec = table.catalogue.spec("Lab-GPU", "test")
    assert (spec.memory_bytes, spec.peer_link_bytes_per_s, spec.source) == (8 * 2**30, 0.0, str(file))
    assert "foo" not in TABLE.models
    assert TABLE.catalogue.find("Lab-GPU") is None


def test_refuses_below_the_first_and_beyond_the_last_knot(file: Path) -> None:
    table = add(file, GOOD)
    for batch in (3, 9):
        with pytest.raises(BeyondProfileError, match=f"at batch sizes 4 to 8, not at {batch}"):
            table.step_profile("foo", "V100", batch)
        assert table.step_profile("foo", "V100", batch, extrapolate=True).extrapolated
    with pytest.raises(BeyondProfileError, match="4 to 4, not at 5"):
        table.step_profile("foo", "Lab-GPU", 5)
    assert table.step_profile("foo", "Lab-GPU", 8, extrapolate=True).forward_s == 2.0


def test_a_bundled_model_gets_another_gpu_type_and_keeps_the_rest(file: Path) -> None:
    knots = {"knots": [{"batch": 1, "forward_s": 0.001, "backward_s": 0.002}]}
    table = add(file, {"models": {"resnet50": {"gpus": {"H100": knots, "K80": knots}}}})
    assert table.step_profile("resnet50", "H100", 1).forward_s == 0.001
    assert table.last_measured_batch("resnet50", "K80") == 1, "replaced"
    assert table.step_profile("resnet50", "V100", 64) == TABLE.step_profile("resnet50", "V100", 64)
    assert table.memory("resnet50", 64) == TABLE.memory("resnet50", 64)


def test_files_can_follow_one_another(file: Path) -> None:
    first = add(file, GOOD)
    file.write_text(json.dumps({"models": {"foo": {"sample_bytes": 0, "gpus": GOOD["models"]["foo"]["gpus"]}}}))
    second = first.with_file(file)
    assert second.step_profile("foo", "V100", 4).transfer_s == 0.0
    assert second.memory("foo", 4) == first.memory("foo", 4)


FOO = "models.foo"
V100 = f"{FOO}.gpus.V100.knots"
MEMORY = f"{FOO}.memory.knots"


def _set(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


def _drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]

    return change


_K = ("models", "foo", "gpus", "V100", "knots")
_M = ("models", "foo", "memory", "knots")
_G = ("gpus", "Lab-GPU")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(*_K, 2, "forward_s", value=0), f"{V100}[2].forward_s: must be > 0"),
        (_set(*_K, 1, "backward_s", value=-0.5), f"{V100}[1].backward_s: must be > 0"),
        (_set(*_K, 0, "forward_s", value="fast"), f'{V100}[0].forward_s: must be a number, not "fast"'),
        (_set(*_K, 0, "forward_s", value=True), f"{V100}[0].forward_s: must be a number, not true"),
        (_set(*_K, 0, "forward_s", value=10**400), f"{V100}[0].forward_s: is too large"),
        (_set(*_K, 0, "batch", value=1.5), f"{V100}[0].batch: must be a whole number, not 1.5"),
        (_set(*_K, 0, "batch", value=0), f"{V100}[0].batch: must be >= 1"),
        (_set(*_K, 0, "batch", value=10**400), f"{V100}[0].batch: is too large"),
        (_set(*_K, 1, "batch", value=4), f"{V100}[1].batch: must be > 4, the batch size before it"),
        (_set(*_K, 2, "batch", value=5), f"{V100}[2].batch: must be > 6, the batch size before it"),
        (_drop(*_K, 2, "backward_s"), f"{V100}[2]: backward_s is missing"),
        (_set(*_K, 2, "forwards", value=1), f"{V100}[2]: unknown field 'forwards'; did you mean forward_s"),
        (_set(*_K, 2, value=7), f"{V100}[2]: must be an object, not 7"),
        (_set(*_K, value=[]), f"{V100}: must have at least one element"),
        (_set(*_K, value={}), f"{V100}: must be an array, not an object"),
        (_drop(*_K), f"{FOO}.gpus.V100: knots is missing"),
        (_set("models", "foo", "gpus", value={}), f"{FOO}.gpus: must name at least one GPU type"),
        (_set("models", "foo", "gpus", "V1000", value={}), f"{FOO}.gpus.V1000: unknown GPU type 'V1000'"),
        (
            _set(
                "models",
                "foo",
                "gpus",
                "tesla-v100-pcie-32gb",
                value={"knots": [GOOD["models"]["foo"]["gpus"]["V100"]]},
            ),
            f"{FOO}.gpus.tesla-v100-pcie-32gb: means Tesla_V100-PCIE-32GB, which another name here means too",
        ),
        (_set(*_M, 1, "peak_bytes", value=0), f"{MEMORY}[1].peak_bytes: must be >= 1"),
        (_set(*_M, 1, "peak_bytes", value=1e9), f"{MEMORY}[1].peak_bytes: must be a whole number"),
        (_set(*_M, 1, "persistent_bytes", value=9000), f"{MEMORY}[1].persistent_bytes: must be <= peak_bytes"),
        (_set("models", "foo", "sample_bytes", value=-1), f"{FOO}.sample_bytes: must be >= 0"),
        (_drop("models", "foo", "sample_bytes"), f"{FOO}: sample_bytes is missing"),
        (_drop("models", "foo", "memory"), f"{FOO}: memory is missing"),
        (_drop("models", "foo", "gpus"), f"{FOO}: gpus is missing"),
        (_set("models", " ", value={}), "models: has an empty name"),
        (_set("modles", value={}), "unknown field 'modles'; did you mean models?"),
        (_set(*_G, "memory_bytes", value=0), "gpus.Lab-GPU.memory_bytes: must be >= 1"),
        (_set(*_G, "host_link_bytes_per_s", value=0), "gpus.Lab-GPU.host_link_bytes_per_s: must be > 0"),
        (_set(*_G, "peer_link_bytes_per_s", value=-1), "gpus.Lab-GPU.peer_link_bytes_per_s: must be >= 0"),
        (_set(*_G, "architecture", value=8), "gpus.Lab-GPU.architecture: must be a string, not 8"),
        (_drop(*_G, "memory_bytes"), "gpus.Lab-GPU: memory_bytes is missing"),
        (_set("gpus", "v100", value={}), "gpus.v100: means Tesla_V100-PCIE-32GB, which is there already"),
        (_set("gpus", value=[]), "gpus: must be an object, not an empty array"),
    ],
)
def test_a_mistake_is_named_with_file_and_path(
    change: Callable[[dict[str, Any]], None], message: str, file: Path
) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    with pytest.raises(InputError) as caught:
        add(file, document)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"models": ', ":1:12: is not JSON: Expecting value"),
        ("[]", ": must be an object, not an empty array"),
        ('{"models": {}, "models": {}}', ": has the key 'models' twice in one object"),
        ('{"gpus": NaN}', ": has the value NaN, which JSON doesn't know"),
        ("[" * 100_000, ": is nested too deeply"),
    ],
)
def test_a_document_that_is_no_profile_file(text: str, message: str, file: Path) -> None:
    with pytest.raises(InputError) as caught:
        add(file, text)
    assert str(caught.value).startswith(f"{file}{message}")


def test_a_file_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read: No such file"):
        TABLE.with_file(file)
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        TABLE.with_file(tmp_path)
    file.write_bytes(b'{"models": "\xff"}')
    with pytest.raises(InputError, match="is not UTF-8 text"):
        TABLE.with_file(file)


def test_the_example_in_the_format_description_works(file: Path) -> None:
    documented = (user_file.__doc__ or "").split("\n\n")[1]
    table = add(file, "\n".join(_bare(line) for line in documented.splitlines()))
    assert table.step_profile("my-bert", "V100", 1).backward_s == 0.023


def _bare(line: str) -> str:
    """A documented line without the remark that follows its value."""
    indent = line[: len(line) - len(line.lstrip())]
    return indent + line.lstrip().split("   ")[0]


def test_an_unknown_field_is_an_unknown_name(file: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        add(file, {"models": {"foo": {"gpu": {}}}})
    assert isinstance(caught.value, EmuGpuError)
    assert not caught.value.retry_helps


def test_a_model_is_written_as_it_was_read(file: Path) -> None:
    document = copy.deepcopy(GOOD)
    for knot in document["models"]["foo"]["gpus"]["V100"]["knots"]:
        knot["start_s"] = 7.5
    profile = add(file, document).model("foo")
    del document["models"]["foo"]["gpus"]["Lab-GPU"], profile.steps["Lab-GPU"]  # type: ignore[attr-defined]
    written = user_file.model_document(profile)
    again = TABLE.with_models(Field("", "", {"foo": written})).model("foo")
    assert again == profile and json.loads(json.dumps(written)) == written
    bundled = TABLE.model("resnet50")
    assert TABLE.with_models(Field("", "", {"other": user_file.model_document(bundled)})).model("other") == bundled


def test_a_start_in_some_knots_only(file: Path) -> None:
    document = copy.deepcopy(GOOD)
    document["models"]["foo"]["gpus"]["V100"]["knots"][0]["start_s"] = 7.5
    with pytest.raises(InputError, match=r"models\.foo\.gpus\.V100: must have start_s in each knot or in none"):
        add(file, document)
