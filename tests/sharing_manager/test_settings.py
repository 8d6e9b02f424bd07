"""Settings: each field has a variable; missing, unknown and contradictory values are errors that say so."""

from dataclasses import fields
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from sharing_manager.settings import Settings

PREFIX = "EMUGPU_MANAGER_"
LOCAL = {
    "EMUGPU_MANAGER_NODE": "n1",
    "EMUGPU_MANAGER_INVENTORY": "/etc/inventory.json",
    "EMUGPU_MANAGER_SOCKET_DIR": "/run/emugpu",
    "EMUGPU_MANAGER_STATE_DIR": "/var/lib/emugpu",
}
CLUSTER = {
    "EMUGPU_MANAGER_NODE": "n1",
    "EMUGPU_MANAGER_INVENTORY": "kubernetes",
    "EMUGPU_MANAGER_KUBERNETES": "1",
    "EMUGPU_MANAGER_NODE_DIR": "/var/lib/emugpu",
}


def test_a_local_cluster_needs_four_and_other_variables_are_nobodys():
    settings = Settings.from_env(LOCAL | {"PATH": "/bin", "EMUGPU_REALTIME": "1"})
    assert (settings.node, settings.clock, settings.sharing, settings.lifeline_fd) == ("n1", "", "exclusive", "")
    assert settings.layout is None
    assert settings.job_socket == Path("/run/emugpu/manager.sock")
    assert settings.admin_socket == Path("/run/emugpu/admin.sock")
    assert settings.state_file == Path("/var/lib/emugpu/manager.db")
    assert (settings.metrics_port, settings.kubernetes) == (0, False)


def test_a_node_of_a_cluster_has_everything_in_its_directory():
    settings = Settings.from_env(CLUSTER | {"EMUGPU_MANAGER_METRICS_PORT": "9400"})
    assert settings.job_socket == Path("/var/lib/emugpu/run/manager.sock")
    assert settings.admin_socket == Path("/var/lib/emugpu/admin/admin.sock")
    assert settings.state_file == Path("/var/lib/emugpu/state/manager.db")
    assert settings.lock_file.parent == settings.lease_file.parent == settings.state_file.parent
    assert (settings.metrics_port, settings.kubernetes) == (9400, True)


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_required_one_is_missing(name, how):
    environ = LOCAL | {name: ""} if how == "empty" else {n: v for n, v in LOCAL.items() if n != name}
    with pytest.raises(InputError, match=f"^{name}: is missing: .+"):
        Settings.from_env(environ)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (LOCAL | {PREFIX + "TOOLS": "/opt"}, "TOOLS: has no meaning without EMUGPU_MANAGER_NODE_DIR; leave it out"),
        (CLUSTER | {PREFIX + "STATE_DIR": "/x"}, "STATE_DIR: has no meaning with EMUGPU_MANAGER_NODE_DIR"),
        (CLUSTER | {PREFIX + "SOCKET_DIR": "/x"}, "SOCKET_DIR: has no meaning with EMUGPU_MANAGER_NODE_DIR"),
        (CLUSTER | {PREFIX + "RESOURCES": "[]"}, "RESOURCES: has no meaning with EMUGPU_MANAGER_NODE_DIR"),
        (
            CLUSTER | {PREFIX + "KUBERNETES": "0"},
            "INVENTORY: is kubernetes, which needs EMUGPU_MANAGER_KUBERNETES=1 and",
        ),
        (LOCAL | {PREFIX + "INVENTORY": "kubernetes"}, "INVENTORY: is kubernetes, which needs"),
        (CLUSTER | {PREFIX + "KUBERNETES": "yes"}, "KUBERNETES: must be 1 or 0, got 'yes'"),
        (CLUSTER | {PREFIX + "METRICS_PORT": "70000"}, "METRICS_PORT: must be a whole number from 0 to 65535"),
        (CLUSTER | {PREFIX + "OUTBOX_BYTES": "4095"}, "OUTBOX_BYTES: must be a whole number, at least 4096"),
        (CLUSTER | {PREFIX + "STREAM_LENGTH": "999"}, "STREAM_LENGTH: must be a whole number, at least 1000"),
    ],
)
def test_settings_that_contradict_each_other(given, message):
    with pytest.raises(InputError) as caught:
        Settings.from_env(given)
    assert message in str(caught.value)


def test_an_unknown_one_gets_a_hint():
    with pytest.raises(
        UnknownNameError, match=r"unknown setting 'EMUGPU_MANAGER_SHARNIG'; did you mean EMUGPU_MANAGER_SHARING"
    ):
        Settings.from_env(LOCAL | {"EMUGPU_MANAGER_SHARNIG": "fifo"})


def test_help_has_a_line_for_each():
    lines = Settings.help().splitlines()
    assert [line.split()[0] for line in lines] == [PREFIX + f.name.upper() for f in fields(Settings)]
    assert lines[0].endswith("(required)")
    assert any("EMUGPU_MANAGER_SHARING " in line and "(default 'exclusive')" in line for line in lines)
