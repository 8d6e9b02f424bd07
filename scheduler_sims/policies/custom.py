"""Loads a policy class from a user's file; any mistake in that file becomes one line with file and line number."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from emulator_runtime.domain.errors import EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.wording import one_line


def load_class(path_text: str, class_name: str) -> type[Any]:
    """The policy class called `class_name` in the Python file at `path_text`.

    A class without `needs_estimates` gets False. Raises InputError that names the file, and the line where one is known.
    """
    path = Path(path_text)
    if not class_name:
        raise InputError(path_text, f"name the class after the file: {path_text}:MyPolicy")
    module = _run(path)
    found = vars(module).get(class_name)
    if not isinstance(found, type):
        raise UnknownNameError(path_text, "class", class_name, _policy_names(module))
    if not callable(getattr(found, "plan", None)):
        raise InputError(
            f"{path_text}:{_line_of(path, class_name)}",
            f"class {class_name} has no method plan(self, view) -> Plan, so it is not a policy",
        )
    if not isinstance(getattr(found, "needs_estimates", False), bool):
        raise InputError(
            f"{path_text}:{_line_of(path, class_name)}", f"{class_name}.needs_estimates must be True or False"
        )
    if not hasattr(found, "needs_estimates"):
        # The interface has it on the class. A policy that asks for durations without it gets a clear error.
        type.__setattr__(found, "needs_estimates", False)
    return found


def _run(path: Path) -> ModuleType:
    """Executes the file as a new module each time, since its text may have changed. The import system would use what it has in
    __pycache__ for another text of the same size and second."""
    if not path.is_file():
        raise InputError(str(path), "no such file; give the path of a Python file with your policy class")
    # The name contains the whole path, so that two files of the same name don't replace each other.
    name = f"emugpu_policy_{path.stem}_{crc32(str(path.resolve()).encode()):08x}"
    module = ModuleType(name)
    module.__file__ = str(path.absolute())
    sys.modules[name] = module  # dataclasses look their module up there
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)  # as for a script: the file may import modules beside it
    try:
        exec(compile(path.read_bytes(), module.__file__, "exec", dont_inherit=True), vars(module))
    except EmuGpuError:
        raise
    except SyntaxError as error:
        place = f"{error.filename or path}:{error.lineno or 1}"
        raise InputError(place, f"{type(error).__name__}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise InputError(_place_in(path, error), f"{type(error).__name__}: {one_line(error)}") from error
    return module


def _place_in(path: Path, error: BaseException) -> str:
    """FILE:LINE of the deepest call inside the user's file."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path.absolute()]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _policy_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "plan")
    ]


def _line_of(path: Path, class_name: str) -> int:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.lstrip().startswith(f"class {class_name}"):
            return number
    return 1
