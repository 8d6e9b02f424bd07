"""A session: one process that uses the devices of a grant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sharing_manager.grants.grant import Grant

MAX_SESSIONS = 64
"""Named sessions of one grant at a time; a process has one for the devices that it names together, or one for each. For a local
cluster: on a node of a cluster `MAX_CONNECTIONS` (service/time_budgets.py) is lower."""


@dataclass(eq=False, slots=True)
class Session:
    """A process with its own memory, and its own demands for time.

    `name`: "" for the grant's main session, which the grant always has; others are named by their client, and end with their
    connection. `only`: the devices that it uses, if not all. `pid`: the connected process in the manager's PID namespace; 0 if
    there is none, or it isn't visible. `opened`: whether its process has attached since the manager's start. `since_ns`: when a
    named one connected (emulated time).
    """

    grant: Grant
    name: str = ""
    only: tuple[str, ...] | None = None
    pid: int = 0
    connected: bool = False
    opened: bool = False
    since_ns: int = 0
    used_until_ns: dict[str, int] = field(default_factory=dict)
    """By device of its own: until when it has reported to use it."""

    @property
    def floor_ns(self) -> int:
        """No device works for it before this emulated time."""
        return max(self.since_ns, 0 if self.name else self.grant.floor_ns)

    @property
    def uuids(self) -> tuple[str, ...]:
        """The devices that it uses."""
        return self.grant.uuids if self.only is None else self.only

    @property
    def key(self) -> str:
        """Its unique name on the node, in memory accounts and error messages."""
        return f"{self.grant.holder}, process {self.name}" if self.name else self.grant.holder
