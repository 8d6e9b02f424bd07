"""Files of a node: inventories in both formats, the published inventory, tools for containers."""

import json
import os

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from sharing_manager.devices.inventories import of_devices, publish, published, read_inventory, shared
from sharing_manager.tools import copy_tools, empty

INVENTORY = of_devices([Device("n1", 0, "T", 10), Device("n1", 1, "T", 10)], "n1")

SHARING = """
version: v1
sharing:
  timeSlicing:
    resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


def test_a_list_of_devices_is_one_resource():
    assert [(r.name, r.replicas, len(r.devices)) for r in INVENTORY.resources] == [("emugpu.dev/emuGPU", 1, 2)]


def test_an_inventory_with_resources(tmp_path):
    path = tmp_path / "inventory.json"
    path.write_text(INVENTORY.to_json())
    assert read_inventory(path, "n1") == INVENTORY
    with pytest.raises(InputError, match=f"^{path}: node: must be n2, as EMUGPU_MANAGER_NODE says, not n1"):
        read_inventory(path, "n2")


def test_published_is_whole_readable_and_written_only_when_it_changes(tmp_path, monkeypatch):
    path, said = tmp_path / "inventory.json", []
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("a disk that is slow would hold up all jobs"))
    assert published(path, "n1", said.append) is None
    assert said == []
    publish(path, INVENTORY)
    inode = path.stat().st_ino
    publish(path, INVENTORY)
    assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (inode, 0o644)
    assert published(path, "n1", said.append) == INVENTORY
    assert said == []
    assert published(path, "n2", said.append) is None
    publish(path, Inventory("n1", ()))
    assert path.stat().st_ino != inode
    assert json.loads(path.read_text())["resources"] == []
    assert [p.name for p in tmp_path.iterdir()] == ["inventory.json"]
    path.write_text("[]")
    assert published(path, "n1", said.append) is None
    path.write_text("{")
    assert published(path, "n1", said.append) is None
    assert said == [
        f"{path}: node: must be n2, as EMUGPU_MANAGER_NODE says, not n1; waiting for a new one",
        f"{path}: holds no inventory with resources; waiting for a new one",
        said[2],
    ]
    assert "is not JSON" in said[2]


def test_publishing_where_that_is_not_possible(tmp_path):
    with pytest.raises(InputError, match=r"inventory.json: can't be written: No such file or directory; make room"):
        publish(tmp_path / "missing" / "inventory.json", INVENTORY)


def test_sharing(tmp_path):
    path = tmp_path / "sharing.yaml"
    path.write_text(SHARING)
    assert shared(INVENTORY, "") is INVENTORY
    assert [resource.replicas for resource in shared(INVENTORY, str(path)).resources] == [4]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: [", "not valid YAML: while parsing"),
        (b"\xff\xff", "not valid YAML"),
        (b"[" * 5_000, "is nested too deeply"),
        (b"- 1", "must hold an object with version and sharing"),
        (None, "can't read the sharing configuration: No such file"),
    ],
    ids=["broken", "binary", "deep", "list", "missing"],
)
def test_a_sharing_file_that_is_none(tmp_path, content, problem):
    path = tmp_path / "sharing.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        shared(INVENTORY, str(path))
    assert str(caught.value).startswith(f"{path}: {problem}")
    assert "\n" not in str(caught.value)


def test_an_unhealthy_device_is_published_as_such(tmp_path):
    sick = DeviceEntry(Device("n1", 0, "T", 10), healthy=False, reason="XID 79")
    publish(tmp_path / "i.json", Inventory("n1", (ResourceEntry("r/x", (sick,)),)))
    (device,) = json.loads((tmp_path / "i.json").read_text())["resources"][0]["devices"]
    assert (device["healthy"], device["reason"]) == (False, "XID 79")


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path):
    tools = tmp_path / "source"
    (tools / "python" / "emulator_runtime" / "__pycache__").mkdir(parents=True)
    (tools / "nvidia-smi").write_bytes(b"binary")
    (tools / "nvidia-smi").chmod(0o755)
    (tools / "python" / "emulator_runtime" / "a.py").write_text("a")
    (tools / "python" / "emulator_runtime" / "__pycache__" / "a.pyc").write_text("compiled")
    return tools


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_tools_are_copied_whole_with_their_modes_and_open_to_all(source, tmp_path):
    target = tmp_path / "node" / "tools"
    before = os.umask(0o077)
    try:
        copy_tools(source, target)
    finally:
        os.umask(before)
    assert files(target) == ["nvidia-smi", "python/emulator_runtime/a.py"]
    assert (target / "nvidia-smi").stat().st_mode & 0o777 == 0o755
    assert (target / "python" / "emulator_runtime").stat().st_mode & 0o777 == 0o755


def test_what_has_not_changed_is_left_and_what_has_is_another_file(source, tmp_path):
    target = tmp_path / "tools"
    copy_tools(source, target)
    inodes = {name: (target / name).stat().st_ino for name in files(target)}
    (source / "nvidia-smi").write_bytes(b"newer binary")
    (source / "python" / "emulator_runtime" / "a.py").rename(source / "python" / "emulator_runtime" / "b.py")
    with (target / "nvidia-smi").open("rb") as mounted:
        copy_tools(source, target)
        assert mounted.read() == b"binary"  # a container that has it open keeps what it has
    assert (target / "nvidia-smi").read_bytes() == b"newer binary"
    assert (target / "nvidia-smi").stat().st_ino != inodes["nvidia-smi"]
    assert files(target) == ["nvidia-smi", "python/emulator_runtime/b.py"]
    before = (target / "nvidia-smi").stat().st_ino
    copy_tools(source, target)
    assert (target / "nvidia-smi").stat().st_ino == before


def test_tools_that_are_not_there_or_cant_be_put_there(source, tmp_path):
    with pytest.raises(
        InputError,
        match=r"EMUGPU_MANAGER_TOOLS: can't copy .*missing to .*: there is no such directory; name a directory",
    ):
        copy_tools(tmp_path / "missing", tmp_path / "tools")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="EMUGPU_MANAGER_TOOLS: can't copy"):
        copy_tools(source, tmp_path / "file" / "tools")


def test_emptying(source, tmp_path):
    (source / "link").symlink_to(tmp_path)
    empty(source)
    assert list(source.iterdir()) == []
    assert tmp_path.exists()
    with pytest.raises(InputError, match=r"missing: can't be emptied: No such file or directory; remove it by hand"):
        empty(source / "missing")
