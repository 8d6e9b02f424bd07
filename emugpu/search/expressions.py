"""Arithmetic in recipes, such as `global_batch % (dp * micro_batch) == 0`: numbers, names, texts, and nothing that could act."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import quoted

Value = bool | int | float | str

MAX_LENGTH = 500
_LARGEST = 1e30
_ARITHMETIC: Mapping[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.AST], Callable[[Value, Value], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max}
FUNCTIONS = frozenset(_FUNCTIONS)


class Expression:
    """An expression over names. `+ - * / // %`, comparisons, `and or not`, `a if b else c`, `min()` and `max()`."""

    def __init__(self, text: str, names: Collection[str], place: str) -> None:
        """`place` is where it stands, for errors. Raises InputError if it has anything else, or a name that isn't there."""
        self.text, self._place = text, place
        if len(text) > MAX_LENGTH:
            raise InputError(place, f"must be an expression of at most {MAX_LENGTH} characters")
        try:
            self._root = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(place, f"{quoted(text)} is not an expression") from error
        for node in ast.walk(self._root):
            self._check(node, names)
        self.names = frozenset(node.id for node in ast.walk(self._root) if isinstance(node, ast.Name))

    def _check(self, node: ast.AST, names: Collection[str]) -> None:
        allowed = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.boolop, ast.expr_context, ast.Call)
        kinds = (*_ARITHMETIC, *_COMPARISONS, ast.USub, ast.Not, *allowed)
        if isinstance(node, ast.Name):
            if node.id not in names and node.id not in _FUNCTIONS:
                known = ", ".join(sorted(names))
                raise InputError(self._place, f"{quoted(self.text)}: there is no {node.id}, only {known}")
        elif isinstance(node, ast.Constant):
            if not isinstance(node.value, bool | int | float | str):
                raise self._refused(str(node.value))
        elif not isinstance(node, kinds):
            raise self._refused(type(node).__name__)
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords or not node.args
        ):
            raise self._refused("a call of anything but min() and max()")

    def _refused(self, what: str) -> InputError:
        return InputError(self._place, f"{quoted(self.text)} has {what}, which expressions can't have")

    def value(self, values: Mapping[str, Value]) -> Value:
        """Raises InputError, with the values, if it can't be worked out: a division by zero, a text where a number belongs."""
        try:
            return self._value(self._root, values)
        except (ZeroDivisionError, TypeError, OverflowError, RecursionError) as error:
            given = ", ".join(f"{name} {values[name]}" for name in sorted(self.names) if name in values)
            what = f"{quoted(self.text)} with {given}" if given else quoted(self.text)
            raise InputError(self._place, f"{what}: {error}") from error

    def number(self, values: Mapping[str, Value]) -> float:
        """Its value, which must be above 0. Raises InputError."""
        found = self.value(values)
        if isinstance(found, str | bool) or not 0 < found < _LARGEST:
            raise InputError(self._place, f"{quoted(self.text)} must be a number above 0, and is {found}")
        return found

    def _value(self, node: ast.expr, values: Mapping[str, Value]) -> Value:
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, bool | int | float | str)
            return node.value
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, values), self._number(node.right, values)
            found = _ARITHMETIC[type(node.op)](left, right)
            if abs(found) > _LARGEST:
                raise OverflowError("the result is too large")
            return found
        if isinstance(node, ast.UnaryOp):
            return (
                not self._value(node.operand, values)
                if isinstance(node.op, ast.Not)
                else -self._number(node.operand, values)
            )
        if isinstance(node, ast.BoolOp):
            both = all if isinstance(node.op, ast.And) else any
            return both(self._value(one, values) for one in node.values)
        if isinstance(node, ast.IfExp):
            return self._value(node.body if self._value(node.test, values) else node.orelse, values)
        if isinstance(node, ast.Compare):
            return self._compared(node, values)
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return _FUNCTIONS[node.func.id](*(self._number(one, values) for one in node.args))

    def _number(self, node: ast.expr, values: Mapping[str, Value]) -> float:
        found = self._value(node, values)
        if isinstance(found, str):
            raise TypeError(f"{quoted(found)} is not a number")
        return found

    def _compared(self, node: ast.Compare, values: Mapping[str, Value]) -> bool:
        left = self._value(node.left, values)
        for kind, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other, values)
            if not _COMPARISONS[type(kind)](left, right):
                return False
            left = right
        return True
