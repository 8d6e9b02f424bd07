"""Settings from environment variables: each daemon has one frozen class, and `--help` is generated from its fields.

    @dataclass(frozen=True)
    class Settings(EnvSettings):
        PREFIX: ClassVar[str] = "EMUGPU_PLUGIN_"
        node_dir: str = setting("the node directory", "/var/lib/emugpu")

Fields are texts, as in the environment; the methods `whole` and `flag` convert and check one. `run_daemon` is the `main` of a
program that has such settings and no arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import ClassVar, Self, TypeVar

from emulator_runtime.domain.errors import EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.exit_codes import EXIT_WRONG

_FLAGS = {"": False, "0": False, "1": True}


def setting(help_text: str, default: str | None = None, *, least: int | None = None, most: int | None = None) -> str:
    """A field of a settings class; required if it has no default. With `least`, it is a whole number from `least` to `most`
    (None: no upper bound), which the chart checks before the program starts."""
    metadata: dict[str, object] = {"help": help_text}
    if least is not None:
        metadata |= {"least": least, "most": most}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


@dataclass(frozen=True)
class EnvSettings:
    """Base class: the variable <PREFIX><FIELD IN CAPITALS> sets each field."""

    PREFIX: ClassVar[str]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Raises InputError for a missing variable, UnknownNameError for a variable with the prefix that is no setting."""
        known = {cls.variable(f.name): f for f in fields(cls)}
        variables = {name: value for name, value in environ.items() if name.startswith(cls.PREFIX)}
        for name in variables:
            if name not in known:
                raise UnknownNameError("environment", "setting", name, known)
        for name, setting in known.items():
            if setting.default is MISSING and not variables.get(name):
                raise InputError(name, f"is missing: {setting.metadata['help']}")
        return cls(**{known[name].name: value for name, value in variables.items()})

    @classmethod
    def help(cls) -> str:
        """The settings as text for --help, one line each."""
        width = max(len(cls.variable(f.name)) for f in fields(cls)) + 1
        lines = []
        for f in fields(cls):
            default = "required" if f.default is MISSING else f"default {f.default!r}"
            lines.append(f"  {cls.variable(f.name):<{width}} {f.metadata['help']} ({default})")
        return "\n".join(lines)

    @classmethod
    def variable(cls, name: str) -> str:
        """The environment variable of the field `name`."""
        return cls.PREFIX + name.upper()

    def whole(self, name: str, *, least: int, most: int) -> int:
        """The field as a whole number from `least` to `most`. Raises InputError naming the variable."""
        text: str = getattr(self, name)
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise InputError(self.variable(name), f"must be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    def flag(self, name: str) -> bool:
        """The field as a boolean: 1 is on, 0 or empty is off. Raises InputError naming the variable."""
        text: str = getattr(self, name)
        if text not in _FLAGS:
            raise InputError(self.variable(name), f"must be 1 or 0, got {text!r}")
        return _FLAGS[text]


S = TypeVar("S", bound=EnvSettings)


def run_daemon(
    argv: Sequence[str],
    module: str,
    purpose: str,
    settings: type[S],
    run: Callable[[S], int | None],
    *,
    name: str = "",
    exit_wrong: int = EXIT_WRONG,
) -> int:
    """Run `python -m MODULE` with the settings of the environment; returns the exit status, 0 where `run` returns None.

    An EmuGpuError becomes one line on stderr and the status `exit_wrong`. `purpose`: a sentence for --help. `name` begins the
    lines on stderr; empty: the last part of `module`.
    """
    name = name or module.rpartition(".")[2]
    if list(argv) in (["-h"], ["--help"]):
        print(f"usage: python -m {module}\n\n{purpose} Settings:\n{settings.help()}")
        return 0
    if argv:
        print(f"{name}: takes no arguments; see --help", file=sys.stderr)
        return exit_wrong
    try:
        return run(settings.from_env(os.environ)) or 0
    except EmuGpuError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return exit_wrong
