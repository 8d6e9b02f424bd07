"""Frozen dataclasses of which the simulator makes many at each event: a constructor that takes half the time.

The constructor of a frozen dataclass calls `object.__setattr__` for each field, which looks the field up by its name; that was a
quarter of a simulation. A class with slots has a descriptor for each field, which is known as soon as the class is.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def often_made(cls: type[T]) -> type[T]:
    """Decorates a dataclass with `frozen=True, slots=True`, whose constructor does the same afterwards.

    Fields have no options but defaults, and the class has no `__post_init__`.
    """
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters, body = ["self"], []
    for field in fields(cls):  # type: ignore[arg-type]  # it is a dataclass
        name, parameter, value = field.name, field.name, field.name
        names[f"set_{name}"] = getattr(cls, name).__set__
        if field.default is not MISSING:
            names[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        elif field.default_factory is not MISSING:
            names[f"new_{name}"] = field.default_factory
            parameter, value = f"{name}=MISSING", f"new_{name}() if {name} is MISSING else {name}"
        parameters.append(parameter)
        body.append(f"    set_{name}(self, {value})")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *body])
    exec(source, names)  # as `dataclass` does
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]
    return cls
