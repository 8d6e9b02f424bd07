"""Reading a file that a test has written, and what is said about a bad one."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError


@pytest.fixture
def reader(tmp_path):
    """`reader(read, name)`: a function that writes its argument to the file `name` and reads it."""

    def reader(read, name):
        def load(text):
            path = tmp_path / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return read(path)

        return load

    return reader


@pytest.fixture
def refused(load, tmp_path):
    """The error of a file that `load` refuses, without the folder in front."""

    def refused(text, error_class=InputError):
        with pytest.raises(error_class) as caught:
            load(text)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{tmp_path}/")

    return refused
