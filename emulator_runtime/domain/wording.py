"""How error messages quote input from outside: on one line, and shortened if it is long."""

from __future__ import annotations

from reprlib import Repr

MOST_SHOWN = 60
"""The longest text, in characters, that is quoted in full."""
NESTED_TOO_DEEPLY = "is nested too deeply"
"""The message for a document whose parser raises RecursionError."""


class _Short(Repr):
    """A repr that stops early: a YAML document of a few lines may expand to more data than memory holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2

    def repr_str(self, text: str, _level: int) -> str:
        return quoted(text)

    def repr_int(self, number: int, level: int) -> str:
        try:
            return super().repr_int(number, level)
        except ValueError:  # Python refuses to print an int with so many digits
            return f"a number of {number.bit_length()} bits"


_SHORT = _Short()


def quoted(text: str) -> str:
    """The text in quotes. A text longer than MOST_SHOWN is shortened."""
    return repr(shortened(text, MOST_SHOWN))


def shortened(text: str, most: int) -> str:
    """The text in at most `most` characters; if that isn't all of it, it ends with "..."."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object) -> str:
    """The repr of any value, shortened if it is longer than MOST_SHOWN."""
    text = _SHORT.repr(value)
    return text if isinstance(value, str) else shortened(text, MOST_SHOWN)


def one_line(error: BaseException) -> str:
    """The message of an error, on one line."""
    return folded(str(error))


def folded(text: str) -> str:
    """The text on one line: each line break, with the blanks before and after it, becomes one blank."""
    return " ".join(part for line in text.splitlines() if (part := line.strip()))
