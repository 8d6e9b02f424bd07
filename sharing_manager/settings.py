"""The manager's settings: one frozen class; each field has its variable and its sentence, `--help` is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from emulator_runtime.domain.errors import InputError, UnknownNameError

PREFIX = "EMUGPU_MANAGER_"


def _setting(help_text: str, default: str | None = None) -> str:
    metadata = {"help": help_text}
    return field(metadata=metadata) if default is None else field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Each field is read from the variable EMUGPU_MANAGER_<FIELD>."""

    node: str = _setting("name of this node; device UUIDs derive from it")
    inventory: str = _setting("JSON file with the node's devices: [{index, gpu_type, memory_bytes}]")
    socket_dir: str = _setting("directory of the sockets: manager.sock for jobs, admin.sock for the node's owner")
    state_dir: str = _setting("directory of what survives a restart (grants, events)")
    clock: str = _setting("file of the shared clock; empty: the host's monotonic clock", "")
    sharing: str = _setting("sharing mode of the devices: exclusive or fifo", "exclusive")
    lifeline_fd: str = _setting("descriptor that is at its end when the parent is gone; empty: none", "")

    @property
    def job_socket(self) -> Path:
        return Path(self.socket_dir) / "manager.sock"

    @property
    def admin_socket(self) -> Path:
        return Path(self.socket_dir) / "admin.sock"

    @property
    def state_file(self) -> Path:
        return Path(self.state_dir) / "manager.db"

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Raises InputError for a missing variable, UnknownNameError for one that is no setting."""
        known = {f"{PREFIX}{f.name.upper()}": f for f in fields(cls)}
        given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        for name in given:
            if name not in known:
                raise UnknownNameError("environment", "setting", name, known)
        for name, setting in known.items():
            if setting.default is MISSING and not given.get(name):
                raise InputError(name, f"is missing: {setting.metadata['help']}")
        return cls(**{known[name].name: value for name, value in given.items()})

    @classmethod
    def help(cls) -> str:
        """One line per setting, for --help."""
        lines = []
        for f in fields(cls):
            default = "required" if f.default is MISSING else f"default {f.default!r}"
            lines.append(f"  {PREFIX + f.name.upper():<28} {f.metadata['help']} ({default})")
        return "\n".join(lines)
