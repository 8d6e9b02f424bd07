"""How errors quote what somebody gave: on one line, and never all of a thing that may be as long as a file."""

from __future__ import annotations

from reprlib import Repr

MOST_SHOWN = 60
"""Characters of a text that are quoted."""
NESTED_TOO_DEEPLY = "is nested too deeply"
"""What is wrong with a document at which its reader raises RecursionError."""


class _Short(Repr):
    """Stops early: a YAML document of a few lines may stand for more than memory holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2

    def repr_str(self, text: str, _level: int) -> str:
        return quoted(text)

    def repr_int(self, number: int, level: int) -> str:
        try:
            return super().repr_int(number, level)
        except ValueError:  # more digits than Python writes
            return f"a number of {number.bit_length()} bits"


_SHORT = _Short()


def quoted(text: str) -> str:
    """The text in quotes, its end as "..." where it is longer than MOST_SHOWN."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}...")


def shown(value: object) -> str:
    """Any value, as Python writes it as long as it is short."""
    text = _SHORT.repr(value)
    return text if isinstance(value, str) or len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def one_line(error: BaseException) -> str:
    """What an error says, on one line."""
    return folded(str(error))


def folded(text: str) -> str:
    """The text on one line: line breaks, and blanks around them, are one blank."""
    return " ".join(part for line in text.splitlines() if (part := line.strip()))
