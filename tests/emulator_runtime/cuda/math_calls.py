"""The functions of the emulated cuBLAS, cuBLASLt and cuDNN for the test programs, which run in processes of their own.

    blas = Library("libcublas.so.13")
    handle = blas.made("cublasCreate_v2")
    blas.call("cublasSetStream_v2", handle, None)

`call` raises CallError for a status other than 0; `status` answers it.
"""

import ctypes
import os
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p  # noqa: F401
from pathlib import Path

LIBRARIES = Path(os.environ["CORE"]).parent
ONE, ZERO = (c_double * 2)(1.0), (c_double * 2)(0.0)
"""Host scalars: double precision, or anything where only zero matters."""
A, B, C = c_void_p(0x1000), c_void_p(0x2000), c_void_p(0x3000)
"""Addresses that no library should follow."""


# The ctypes types are for the programs, which import everything from here.


class CallError(Exception):
    def __init__(self, function, status):
        super().__init__(f"{function}: {status}")
        self.status = status


class Library:
    def __init__(self, name):
        self.library = ctypes.CDLL(str(LIBRARIES / name))

    def status(self, function, *arguments):
        return getattr(self.library, function)(*arguments)

    def call(self, function, *arguments):
        status = self.status(function, *arguments)
        if status:
            raise CallError(function, status)

    def made(self, function, *arguments):
        """The object that a call creates: its last argument is where to put it."""
        made = c_void_p()
        self.call(function, *arguments, byref(made))
        return made

    def created(self, function, *arguments):
        """The same where the place is the first argument."""
        made = c_void_p()
        self.call(function, byref(made), *arguments)
        return made

    def text(self, function, *arguments):
        found = getattr(self.library, function)
        found.restype = ctypes.c_char_p
        return found(*arguments).decode()


def ints(*values):
    return (c_int * len(values))(*values)


def longs(*values):
    return (c_int64 * len(values))(*values)


class Backend:
    """cuDNN's descriptors of graphs: `tensor(1, (2, 3), type=2)`, `make(TYPE, {attribute: (type, [values])})`."""

    BOOLEAN, INT64, DESCRIPTOR = 2, 3, 15

    def __init__(self, dnn):
        self.dnn = dnn

    def fill(self, kind, attributes):
        made = c_void_p()
        self.dnn.call("cudnnBackendCreateDescriptor", kind, byref(made))
        for name, (of, values) in attributes.items():
            self.set(made, name, of, values)
        return made

    def make(self, kind, attributes):
        made = self.fill(kind, attributes)
        self.dnn.call("cudnnBackendFinalize", made)
        return made

    def values(self, of, values):
        if of in (self.DESCRIPTOR, 0, 6):
            return (c_void_p * len(values))(*[getattr(value, "value", value) for value in values])
        if of == self.INT64:
            return longs(*values)
        if of == self.BOOLEAN:
            return (ctypes.c_bool * len(values))(*values)
        return ints(*values)

    def set(self, descriptor, name, of, values):
        self.dnn.call("cudnnBackendSetAttribute", descriptor, name, of, c_int64(len(values)), self.values(of, values))

    def get(self, descriptor, name, of, room, values=None):
        """The number of elements that there are."""
        count = c_int64(-1)
        self.dnn.call("cudnnBackendGetAttribute", descriptor, name, of, c_int64(room), byref(count), values)
        return count.value

    def tensor(self, identifier, sizes, data_type=0, virtual=False):
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
        attributes = {
            901: (1, [data_type]),
            902: (3, list(sizes)),
            903: (3, strides),
            906: (3, [identifier]),
            907: (self.BOOLEAN, [virtual]),
        }
        return self.make(17, attributes)

    def graph(self, *operations):
        return self.make(15, {801: (self.DESCRIPTOR, list(operations))})

    def configurations(self, graph, mode=3):
        """Engine configurations that the heuristics suggest."""
        heuristics = self.make(4, {200: (8, [mode]), 201: (self.DESCRIPTOR, [graph])})
        count = self.get(heuristics, 202, self.DESCRIPTOR, 0)
        found = [self.fill(3, {}) for _ in range(count)]
        self.get(heuristics, 202, self.DESCRIPTOR, count, self.values(self.DESCRIPTOR, found))
        self.destroy(heuristics)
        return found

    def notes(self, configuration):
        engine = self.fill(2, {})
        self.get(configuration, 300, self.DESCRIPTOR, 1, self.values(self.DESCRIPTOR, [engine]))
        notes = ints(*([-1] * 9))
        count = self.get(engine, 1303, 11, 9, notes)
        self.destroy(engine)
        return list(notes)[:count]

    def plan(self, configuration):
        return self.make(5, {401: (self.DESCRIPTOR, [configuration])})

    def pack(self, *identifiers):
        return self.make(16, {1000: (self.INT64, identifiers), 1001: (6, [0x1000 * i for i in identifiers])})

    def destroy(self, *descriptors):
        for descriptor in descriptors:
            self.dnn.call("cudnnBackendDestroyDescriptor", descriptor)
