from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from emulator_runtime.cuda import launch
from emulator_runtime.cuda.families import SOURCES
from emulator_runtime.cuda.launch import DeviceSettings, ProcessSettings, devices_of, settings_text
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.units import GIB


def keys(text: str) -> set[str]:
    return {line.split(" ", 1)[0] for line in text.splitlines()[1:]}


def test_the_file_begins_with_its_version_and_lists_process_and_devices() -> None:
    text = settings_text(ProcessSettings(estimator="constant", constant_ns=5, warp=True), devices_of("V100", 2, "node"))
    lines = text.splitlines()
    assert lines[:5] == ["emugpu-cuda 1", "estimator constant", "constant_ns 5", "warp 1", "device 0"]
    assert "device 1" in lines
    assert lines.count("name Tesla V100-PCIE-32GB") == 2
    assert "memory_bytes 34089205760" in lines
    assert "flops_fp16 112000000000000.0" in lines
    assert "dispatch_ns 35700.0" in lines


def test_the_core_knows_every_key() -> None:
    process = ProcessSettings(*[1 for _ in dataclasses.fields(ProcessSettings)])  # type: ignore[arg-type]
    known = (SOURCES / "core" / "settings.c").read_text(encoding="utf-8")
    text = settings_text(process, [DeviceSettings("NVIDIA-H200", "GPU-1", 1 * GIB)])
    assert [key for key in sorted(keys(text)) if f'"{key}"' not in known] == []


def test_every_gpu_type_and_every_instance_can_run_programs() -> None:
    assert "name NVIDIA A100-SXM4-40GB MIG 1g.5gb" in settings_text(
        ProcessSettings(), devices_of("NVIDIA_A100-SXM4-40GB-MIG-1g.5gb", 1, "node")
    )


def test_devices_differ_in_uuid_only_and_keep_it() -> None:
    first, second = devices_of("A100", 2, "node")
    assert first.uuid != second.uuid
    assert (first, second) == devices_of("a100", 2, "node")


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_wrong_number_of_gpus_is_told(count: int) -> None:
    with pytest.raises(InputError, match=r"^--gpus: must be from 1 to 64"):
        devices_of("A100", count, "node")


@pytest.mark.parametrize("memory", [0, -1, 41 * GIB])
def test_memory_that_the_type_does_not_have_is_told(memory: int) -> None:
    with pytest.raises(InputError, match=r"^--memory: "):
        devices_of("A100", 1, "node", memory)


def test_an_unknown_gpu_type_is_told() -> None:
    with pytest.raises(UnknownNameError, match=r"^--gpu-type: "):
        devices_of("A1000000", 1, "node")


def test_a_value_with_a_line_break_is_refused() -> None:
    with pytest.raises(InputError, match=r"^trace: must not have a line break"):
        settings_text(ProcessSettings(trace=Path("a\nshared 0")), [])


def test_the_same_settings_are_the_same_file_that_others_cannot_read(tmp_path: Path) -> None:
    environ = {"EMUGPU_CACHE": str(tmp_path)}
    path = launch.write_settings("one\n", environ)
    assert path == launch.write_settings("one\n", environ)
    assert path != launch.write_settings("two\n", environ)
    assert path.read_text(encoding="utf-8") == "one\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(path.parent.iterdir())) == 2


def test_settings_that_nobody_uses_any_more_are_deleted(tmp_path: Path) -> None:
    environ = {"EMUGPU_CACHE": str(tmp_path)}
    old, recent = launch.write_settings("a", environ), launch.write_settings("b", environ)
    os.utime(old, (0, 0))
    launch.write_settings("c", environ)
    assert recent.exists() and not old.exists()


def test_the_environment_redirects_and_keeps_what_was_there(tmp_path: Path) -> None:
    libraries, settings = tmp_path / "libraries", tmp_path / "settings"
    chosen = launch.environment(libraries, settings, {"A": "1", "LD_AUDIT": "/other.so"})
    assert chosen["A"] == "1"
    assert chosen["EMUGPU_CUDA_SETTINGS"] == str(settings)
    assert chosen["LD_AUDIT"] == f"{libraries}/libemugpu_redirect.so:/other.so"
    assert launch.environment(libraries, settings, chosen) == chosen
    assert "LD_PRELOAD" not in chosen


def test_preloading_names_every_library_once(tmp_path: Path) -> None:
    chosen = launch.environment(tmp_path, tmp_path / "settings", {"LD_PRELOAD": "/other.so"}, preload=True)
    names = chosen["LD_PRELOAD"].split(":")
    assert f"{tmp_path}/libcudart.so.12" in names
    assert names[-1] == "/other.so"
    assert launch.environment(tmp_path, tmp_path / "settings", chosen, preload=True) == chosen
    assert "LD_AUDIT" not in chosen


def test_a_program_of_another_c_library_is_told(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF" + bytes(100) + b"/lib/ld-musl-x86_64.so.1\0")
    with pytest.raises(InputError, match="is linked to musl"):
        launch.check_program(str(tmp_path / "program"))
    launch.check_program(str(tmp_path / "nosuch"))
    launch.check_program("/bin/sh")
