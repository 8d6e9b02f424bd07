from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from emugpu.commands import profile
from emulator_runtime.domain.errors import BeyondProfileError, InputError, UnknownNameError
from emulator_runtime.domain.units import gib
from emulator_runtime.profiles.table import ProfileTable

TABLE = ProfileTable.bundled()


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser(prog="emugpu")
    profile.add_parser(parser.add_subparsers())
    args = parser.parse_args(["profile", *argv])
    status: int = args.run(args)
    return status


def as_json(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    assert run(*argv, "--json") == 0
    return json.loads(capsys.readouterr().out)


def lines(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, list[str]]:
    """The printed words of each line by its first word."""
    assert run(*argv) == 0
    return {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}


@pytest.fixture
def own(tmp_path: Path) -> str:
    knots = {"knots": [{"batch": 8, "forward_s": 0.5, "backward_s": 0.25}]}
    memory = {"knots": [{"batch": 8, "peak_bytes": 2**30, "persistent_bytes": 2**20}]}
    content = {
        "gpus": {"Lab[1]": {"memory_bytes": 2**34, "host_link_bytes_per_s": 1e9}},
        "models": {"my[bold]model": {"sample_bytes": 0, "memory": memory, "gpus": {"Lab[1]": knots, "H100": knots}}},
    }
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_list_names_every_model_and_how_far_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, "list")
    assert printed["Model"] == ["Model", "K80", "M40", "P100", "RTX6000", "V100", "A100"]
    assert printed["resnet50"] == ["resnet50", "126", "124", "179", "256", "256", "256"]
    assert set(TABLE.models) <= set(printed)
    listed = as_json(capsys, "list")
    assert [row["model"] for row in listed] == list(TABLE.models)
    assert listed[0]["last_measured_batch"]["Tesla_K80"] == TABLE.last_measured_batch(listed[0]["model"], "K80")


def test_show_compares_gpu_types(capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, "show", "resnet50", "--batch", "64", "200", "64")
    v100 = [f"{TABLE.step_profile('resnet50', 'V100', batch).device_s * 1e3:.1f}" for batch in (64, 200)]
    assert printed["Tesla_V100-PCIE-32GB"] == ["Tesla_V100-PCIE-32GB", *v100, "256"]
    assert printed["Tesla_K80"][2:] == ["-", "126"]
    assert " ".join(printed["peak"][2:]) == " ".join(gib(TABLE.memory("resnet50", batch)[0]) for batch in (64, 200))


def test_show_goes_on_beyond_the_measurements_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    printed = lines(capsys, "show", "resnet50", "--batch", "200", "--extrapolate")
    assert printed["Tesla_K80"][1].startswith("~")
    assert not printed["Tesla_V100-PCIE-32GB"][1].startswith("~")


def test_show_chooses_measured_batch_sizes_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    shown = as_json(capsys, "show", "resnet152", "--gpu", "K80")["gpus"]["Tesla_K80"]
    assert [step["batch"] for step in shown["steps"]] == [1, 8, 16, 32, 58]
    assert not any(step["extrapolated"] for step in shown["steps"])
    assert shown["last_measured_batch"] == 58


def test_show_one_gpu_type_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    step = TABLE.step_profile("vgg16", "V100", 64)
    shown = as_json(capsys, "show", "vgg16", "--gpu", "v100", "--batch", "64")["gpus"]["Tesla_V100-PCIE-32GB"]["steps"][
        0
    ]
    assert shown == {
        "batch": 64,
        "transfer_s": step.transfer_s,
        "forward_s": step.forward_s,
        "backward_s": step.backward_s,
        "step_s": step.device_s,
        "peak_bytes": step.peak_bytes,
        "persistent_bytes": step.persistent_bytes,
        "extrapolated": False,
    }
    printed = lines(capsys, "show", "vgg16", "--gpu", "v100", "--batch", "64")["64"]
    assert printed[1] == f"{step.transfer_s * 1e3:.2f}"
    assert printed[-1] == "yes"
    beyond = lines(capsys, "show", "vgg16", "--gpu", "K80", "--batch", "256", "--extrapolate")["~256"]
    assert beyond[-1] == "no"


def test_own_profiles_are_shown_as_they_are_named(capsys: pytest.CaptureFixture[str], own: str) -> None:
    printed = lines(capsys, "show", "my[bold]model", "--profiles", own)
    assert printed["Lab[1]"] == ["Lab[1]", "750.0", "8"]
    assert printed["NVIDIA-H100-80GB-HBM3"] == ["NVIDIA-H100-80GB-HBM3", "750.0", "8"]
    listed = lines(capsys, "list", "--profiles", own)
    assert listed["my[bold]model"] == ["my[bold]model", *"------", "8", "8"]
    assert listed["Model"][-2:] == ["H100", "Lab[1]"]
    run("show", "my[bold]model", "--gpu", "lab[1]", "--profiles", own)
    assert "my[bold]model on Lab[1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "error", "message"),
    [
        (["resnet5"], UnknownNameError, "unknown model 'resnet5'; did you mean resnet50"),
        (["resnet50", "--gpu", "Voodoo2"], UnknownNameError, "--gpu: unknown GPU type 'Voodoo2'"),
        (["resnet50", "--gpu", "H100"], InputError, "has no profile on NVIDIA-H100-80GB-HBM3, only on"),
        (["resnet50", "--batch", "0"], InputError, "--batch: must be a whole number of at least 1, not 0"),
        (["resnet50", "--gpu", "K80", "--batch", "127"], BeyondProfileError, "1 to 126, not at 127; .*--extrapolate"),
        (["resnet50", "--batch", "300"], BeyondProfileError, "1 to 256, not at 300"),
        (["resnet50", "--profiles", "no/such.json"], InputError, r"no/such\.json: can't be read"),
    ],
)
def test_what_cannot_be_shown_is_an_error(argv: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run("show", *argv)


def test_a_subcommand_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run()
    assert caught.value.code == 2
    assert "{list,show,from-trace,import-trace}" in capsys.readouterr().err
