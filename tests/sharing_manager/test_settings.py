"""Settings: every field has its variable; one that is missing or unknown is an error that says so."""

from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from sharing_manager.settings import Settings

GIVEN = {
    "EMUGPU_MANAGER_NODE": "n1",
    "EMUGPU_MANAGER_INVENTORY": "/etc/inventory.json",
    "EMUGPU_MANAGER_SOCKET_DIR": "/run/emugpu",
    "EMUGPU_MANAGER_STATE_DIR": "/var/lib/emugpu",
}


def test_required_ones_are_enough_and_other_variables_are_nobodys():
    settings = Settings.from_env(GIVEN | {"PATH": "/bin", "EMUGPU_ORDER": "{}"})
    assert (settings.node, settings.clock, settings.sharing, settings.lifeline_fd) == ("n1", "", "exclusive", "")
    assert settings.job_socket == Path("/run/emugpu/manager.sock")
    assert settings.admin_socket == Path("/run/emugpu/admin.sock")
    assert settings.state_file == Path("/var/lib/emugpu/manager.db")


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_required_one_is_missing(name, how):
    environ = GIVEN | {name: ""} if how == "empty" else {n: v for n, v in GIVEN.items() if n != name}
    with pytest.raises(InputError, match=f"^{name}: is missing: .+"):
        Settings.from_env(environ)


def test_an_unknown_one_gets_a_hint():
    with pytest.raises(
        UnknownNameError, match=r"unknown setting 'EMUGPU_MANAGER_SHARNIG'; did you mean EMUGPU_MANAGER_SHARING"
    ):
        Settings.from_env(GIVEN | {"EMUGPU_MANAGER_SHARNIG": "fifo"})


def test_help_has_a_line_for_each():
    lines = Settings.help().splitlines()
    assert len(lines) == 7
    for name in GIVEN:
        assert any(line.split()[0] == name and line.endswith("(required)") for line in lines)
    assert any("EMUGPU_MANAGER_SHARING" in line and "(default 'exclusive')" in line for line in lines)
