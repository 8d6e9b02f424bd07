from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import USABLE_MEMORY_FRACTION, Device, GpuSpec, device_uuid

names = st.text(st.characters(codec="ascii", exclude_characters="/", min_codepoint=33), min_size=1, max_size=20)


def test_the_uuid_never_changes_between_releases():
    assert device_uuid("n1", 0) == "GPU-deaf2594-153a-5cb3-b71f-36b699dffd87"


def test_the_uuid_is_the_same_in_every_process():
    code = "from emulator_runtime.domain.gpu import device_uuid; print(device_uuid('node-7', 3))"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == device_uuid("node-7", 3)


def test_the_uuid_depends_on_node_and_index_only():
    one = Device("n1", 2, "Tesla-T4", 100)
    assert one.uuid == Device("n1", 2, "Tesla_K80", 7).uuid == device_uuid("n1", 2)


@settings(deadline=None)
@given(places=st.sets(st.tuples(names, st.integers(0, 64)), min_size=2, max_size=20))
def test_devices_have_uuids_of_their_own(places):
    assert len({device_uuid(node, index) for node, index in places}) == len(places)


def test_usable_memory_is_below_nominal_and_alike_for_type_and_device():
    spec = GpuSpec("X", 16 * 2**30, 1.0, 1.0, "", "", "")
    device = Device("n1", 0, "X", spec.memory_bytes)
    assert device.usable_memory_bytes == spec.usable_memory_bytes == int(16 * 2**30 * USABLE_MEMORY_FRACTION)
