"""The emulated driver and runtime for programs of the tests: each call answers the status as an integer.

Integers are passed as 64 bits, which suits each integer and pointer parameter on x86-64 and AArch64.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, INVALID_CONFIGURATION = 0, 1, 2, 3, 9
INVALID_SYMBOL, INVALID_COPY_DIRECTION, INVALID_FUNCTION, NO_DEVICE, INVALID_DEVICE = 13, 21, 98, 100, 101
INVALID_IMAGE, INVALID_CONTEXT, UNSUPPORTED_LIMIT, PEER_UNSUPPORTED, INVALID_HANDLE = 200, 201, 215, 217, 400
NOT_FOUND, NOT_READY, PEER_ALREADY, PEER_NOT_ENABLED, ALREADY_REGISTERED, NOT_REGISTERED = 500, 600, 704, 705, 712, 713
TOO_LARGE, NOT_SUPPORTED, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 720, 801, 900, 901

MIB = 1 << 20


class Library:
    """Functions of a library as attributes."""

    def __init__(self, soname: str) -> None:
        self.library = ctypes.CDLL(os.path.join(os.environ["CUDA_LIBRARIES"], soname))

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> int:
            return int(function(*map(_converted, arguments)))

        return call

    def text(self, name: str, *arguments: Any) -> str:
        """What a function answers that returns a text."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_char_p
        answer = function(*map(_converted, arguments))
        return str(answer.decode())


def _converted(argument: Any) -> Any:
    if isinstance(argument, bool) or not isinstance(argument, int):
        return argument
    return ctypes.c_longlong(argument) if argument < 1 << 63 else ctypes.c_ulonglong(argument)


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def out(kind: Any = ctypes.c_void_p) -> Any:
    """A variable for an output; pass `byref(v)`, read `v.value`."""
    return kind()


def made(function: Callable[..., int], *arguments: Any, kind: Any = ctypes.c_void_p) -> int:
    """The output that comes first, of a call that succeeds."""
    output = kind()
    status = function(ctypes.byref(output), *arguments)
    assert status == OK, status
    return output.value or 0


def expect(status: int, wanted: int) -> None:
    assert status == wanted, f"{status} instead of {wanted}"


def register(*names: str) -> list[int]:
    """Kernels as a program's binary registers them; answers the addresses of their host symbols."""
    start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("__cudaRegisterFatBinary", cuda.library))
    handle = start(None)
    symbols = []
    for name in names:
        symbol, text = ctypes.create_string_buffer(1), ctypes.c_char_p(name.encode())
        kept.extend((symbol, text))
        cuda.__getattr__("__cudaRegisterFunction")(handle, ctypes.addressof(symbol), 0, text, -1, 0, 0, 0, 0, 0)
        symbols.append(ctypes.addressof(symbol))
    kept.append(handle)
    return symbols


def launch(
    symbol: int,
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    shared_bytes: int = 0,
    stream: int = 0,
) -> int:
    return cuda.cudaLaunchKernel(symbol, Dim3(*grid), Dim3(*block), 0, shared_bytes, stream)


kept: list[Any] = []
byref, c_int, c_uint, c_size_t, c_float, c_uint64 = (
    ctypes.byref,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_float,
    ctypes.c_uint64,
)
RELEASE = int(os.environ["CUDA_RELEASE"])
cuda = Library(f"libcudart.so.{RELEASE}")
driver = Library("libcuda.so.1")
