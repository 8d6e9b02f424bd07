from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.node.host_resources import from_json, to_json

RESOURCES = (HostResource("storage"), HostResource("link-0", 2.5, ("GPU-a", "GPU-b")))


def test_they_survive_the_way_to_the_manager():
    assert from_json(to_json(RESOURCES), "here") == RESOURCES
    assert from_json("", "here") == ()
    assert from_json('[{"name": "network"}]', "here") == (HostResource("network"),)


WRONG = {
    "no JSON": ("[", "is not JSON"),
    "no list": ("{}", "must be an array"),
    "no name": ('[{"speed": 1}]', r"\[0\]: name is missing"),
    "an empty name": ('[{"name": ""}]', r"\[0\].name: must be a text of 1 to 64"),
    "another field": ('[{"name": "storage", "sped": 1}]', "unknown field 'sped'"),
    "no speed": ('[{"name": "storage", "speed": 0}]', r"\[0\].speed: must be >= 0.001"),
    "too fast": ('[{"name": "storage", "speed": 1000001}]', r"\[0\].speed: must be <= 1e\+06"),
    "no devices": ('[{"name": "link-0", "devices": [1]}]', r"\[0\].devices\[0\]: must be a string"),
    "twice": ('[{"name": "storage"}, {"name": "storage"}]', "has two resources of the same name"),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_named(text, problem):
    with pytest.raises(InputError, match=f"(?s)here.*{problem}"):
        from_json(text, "here")
