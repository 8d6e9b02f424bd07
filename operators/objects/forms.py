"""The forms that Kubernetes gives names, labels and variables: what has another one makes the API server refuse the whole Job.

Source: Kubernetes documentation, "Object Names and IDs" and "Labels and Selectors"; API reference, core/v1 EnvVar and ConfigMap.
"""

from __future__ import annotations

import re
import unicodedata

from emulator_runtime.node.fields import Field
from operators.objects.selector import is_key, is_value

_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_PART}(?:\.{_PART})*", re.ASCII)
_VARIABLE = re.compile(r"[ -<>-~]+", re.ASCII)
_WITHOUT_BLANKS = re.compile(r"[^\s\x00-\x1f\x7f]+", re.ASCII)
_KEY_OF_MAP = re.compile(r"[-._A-Za-z0-9]+", re.ASCII)


def subdomain(document: Field, *, most: int = 253) -> str:
    """A name of most objects. Raises InputError naming the field, as all here."""
    text = document.text(least=1, most=most)
    if not _SUBDOMAIN.fullmatch(text):
        raise document.error(f"{text!r} is no name of Kubernetes: small letters, digits, - and . between them")
    return text


def qualified(document: Field, key: str) -> str:
    """`key` of the object at this place: of a label, an annotation or a taint."""
    if not is_key(key):
        raise document.error(
            f"{key!r} is no key: write NAME or DOMAIN/NAME, with letters, digits, -, _ and . between them"
        )
    return key


def label_text(document: Field) -> str:
    """The value of a label."""
    text = document.text(most=63)
    if not is_value(text):
        raise document.error(f"{text!r} is no label's value: letters, digits, and between them -, _ and .")
    return text


def variable_name(document: Field) -> str:
    """The name of a variable of the environment."""
    text = document.text(least=1, most=253)
    if not _VARIABLE.fullmatch(text):
        raise document.error(f"{text!r} is no variable's name: printable ASCII characters without =")
    return text


def key_of_map(document: Field) -> str:
    """A key of a ConfigMap or Secret."""
    text = document.text(least=1, most=253)
    if not _KEY_OF_MAP.fullmatch(text):
        raise document.error(f"{text!r} is no key of a ConfigMap or Secret: letters, digits, -, _ and .")
    return text


def line(document: Field, *, most: int) -> str:
    """A text for people, without control characters and ends of lines."""
    text = document.text(least=1, most=most)
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise document.error(f"{text!r} has control characters")
    return text


def word(document: Field, *, most: int) -> str:
    """A text without blanks and control characters."""
    text = document.text(least=1, most=most)
    if not _WITHOUT_BLANKS.fullmatch(text):
        raise document.error(f"{text!r} has blanks or control characters in it")
    return text


def image(document: Field) -> str:
    """Where an image is; the runtime knows best what else is wrong with it."""
    text = document.text(least=1)
    if any(character.isspace() for character in text):
        raise document.error(f"{text!r} has blanks in it")
    return text
