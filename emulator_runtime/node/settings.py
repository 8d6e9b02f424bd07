"""Settings from environment variables: each daemon has one frozen class, and `--help` is generated from its fields.

    @dataclass(frozen=True)
    class Settings(EnvSettings):
        PREFIX: ClassVar[str] = "EMUGPU_PLUGIN_"
        node_dir: str = setting("the node directory", "/var/lib/emugpu")
        metrics_port: int = setting("port of /metrics; 0: none", 9401, most=65535)

`from_env` converts and checks the variables. `run_daemon` is the `main` of a program that has such settings and no arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

from emulator_runtime.domain.errors import EmuGpuError, InputError, UnknownNameError
from emulator_runtime.exit_codes import EXIT_WRONG

T = TypeVar("T", str, int, bool)


def setting(help_text: str, default: T | None = None, *, least: int = 0, most: int | None = None) -> T:
    """A field of a settings class; required if it has no default. Its type is that of the default: a text, a boolean (1 or 0
    in the environment) or a whole number from `least` to `most` (None: no upper bound)."""
    metadata = {"help": help_text, "least": least, "most": most}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


@dataclass(frozen=True)
class EnvSettings:
    """Base class: the variable <PREFIX><FIELD IN CAPITALS> sets each field. A number or boolean that is empty has its default."""

    PREFIX: ClassVar[str]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Raises InputError for a missing variable or a wrong value, UnknownNameError for a variable with the prefix that is no
        setting."""
        known = {cls.variable(f.name): f for f in fields(cls)}
        variables = {name: value for name, value in environ.items() if name.startswith(cls.PREFIX)}
        for name in variables:
            if name not in known:
                raise UnknownNameError("environment", "setting", name, known)
        for name, setting in known.items():
            if setting.default is MISSING and not variables.get(name):
                raise InputError(name, f"is missing: {setting.metadata['help']}")
        return cls(**{known[name].name: _value(known[name], name, text) for name, text in variables.items()})

    @classmethod
    def help(cls) -> str:
        """The settings as text for --help, one line each."""
        width = max(len(cls.variable(f.name)) for f in fields(cls)) + 1
        lines = []
        for f in fields(cls):
            shown = int(f.default) if isinstance(f.default, bool) else f.default
            default = "required" if f.default is MISSING else f"default '{shown}'"
            lines.append(f"  {cls.variable(f.name):<{width}} {f.metadata['help']} ({default})")
        return "\n".join(lines)

    @classmethod
    def variable(cls, name: str) -> str:
        """The environment variable of the field `name`."""
        return cls.PREFIX + name.upper()


def _value(setting: Field[Any], variable: str, text: str) -> str | int | bool:
    """Raises InputError that names the variable."""
    if setting.default is MISSING or isinstance(setting.default, str):
        return text
    if not text:
        return setting.default  # type: ignore[no-any-return]
    if isinstance(setting.default, bool):
        if text not in ("0", "1"):
            raise InputError(variable, f"must be 1 or 0, got {text!r}")
        return text == "1"
    least, most = setting.metadata["least"], setting.metadata["most"]
    if not (text.isascii() and text.isdigit() and least <= int(text) and (most is None or int(text) <= most)):
        bounds = f", at least {least}" if most is None else f" from {least} to {most}"
        raise InputError(variable, f"must be a whole number{bounds}, got {text!r}")
    return int(text)


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
