"""The functions of libemugpu_core.so for the test programs, which run in processes of their own: a process has its settings once.

    core = Core()
    stream = core.stream()
    core.launch(stream)
    core.synchronize(stream)

A status other than 0 raises CallError; `status` tells a refused call apart.
"""

import ctypes
import os
import time
from ctypes import POINTER, byref, c_bool, c_double, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p

DEVICE, HOST = 2, 1
NON_BLOCKING = 1
INVALID_VALUE, OUT_OF_MEMORY, INVALID_HANDLE, NOT_READY, LAUNCH_FAILED = 1, 2, 400, 600, 719
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
BEGIN = ctypes.CFUNCTYPE(c_void_p, c_void_p)
POLL = ctypes.CFUNCTYPE(c_bool, c_void_p, c_int64, POINTER(c_int64))


class CallError(Exception):
    def __init__(self, function, status):
        super().__init__(f"{function}: {status}")
        self.status = status


class Work(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("name", ctypes.c_char_p),
        ("precision", c_int),
        ("flops", c_double),
        ("bytes", c_double),
        ("columns", c_double),
        ("depth", c_double),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
    )


class Deferred(ctypes.Structure):
    _fields_ = (
        ("begin", BEGIN),
        ("poll", POLL),
        ("done", HOST_FUNCTION),
        ("drop", HOST_FUNCTION),
        ("plan", c_void_p),
        ("name", ctypes.c_char_p),
    )


class Core:
    def __init__(self):
        self.library = ctypes.CDLL(os.environ["CORE"])
        for pointer in ("emu_stream_default", "emu_stream_of", "emu_kernel_named", "emu_context_primary"):
            getattr(self.library, pointer).restype = c_void_p
        self.library.emu_now_ns.restype = c_int64
        self.library.emu_graph_nodes.restype = c_size_t
        self.library.emu_memory_peak.restype = c_size_t
        self.library.emu_memory_find.restype = c_bool
        self.started = self.library.emu_start()
        self.kernel = c_void_p(self.library.emu_kernel_named(b"kernel"))
        self._alive = []

    def call(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status:
            raise CallError(function, status)

    def status(self, function, *arguments):
        return getattr(self.library, function)(*arguments)

    def made(self, function, *arguments):
        """The object that a call creates: its last argument is where to put it."""
        made = c_void_p()
        self.call(function, *arguments, byref(made))
        return made

    def default_stream(self, device=0):
        return c_void_p(self.library.emu_stream_default(device))

    def stream(self, device=0, flags=NON_BLOCKING):
        return self.made("emu_stream_create", device, flags, 0)

    def event(self, device=0):
        return self.made("emu_event_create", device, 0)

    def launch(self, stream, times=1):
        """The kernel of the constant estimator."""
        grid = (c_uint * 3)(1, 1, 1)
        for _ in range(times):
            self.call("emu_launch_kernel", stream, self.kernel, grid, grid, None)

    def work(self, stream, **fields):
        self.call("emu_launch", stream, byref(Work(**fields)))

    def gate(self, *streams):
        """An event that the streams wait for, and a function that lets it happen: what is issued in between has exact times
        behind it, however slow the host is."""
        own, opened = self.stream(), []

        def poll(ready_ns):
            return opened[0] if opened else None

        self.deferred(own, poll)
        event = self.record(own)
        for stream in streams:
            self.wait(stream, event)
        return event, lambda: opened.append(self.library.emu_now_ns())

    def record(self, stream, event=None):
        event = event or self.event()
        self.call("emu_event_record", event, stream)
        return event

    def wait(self, stream, event):
        self.call("emu_stream_wait", stream, event)

    def synchronize(self, stream):
        self.call("emu_stream_synchronize", stream)

    def elapsed_ms(self, start, end):
        result = c_float()
        self.call("emu_event_elapsed", start, end, byref(result))
        return result.value

    def allocate(self, size, kind=DEVICE, device=0):
        return self.made("emu_memory_allocate", device, kind, c_size_t(size))

    def free(self, address, kind=DEVICE):
        self.call("emu_memory_free", kind, address)

    def free_bytes(self, device=0):
        free, total = c_size_t(), c_size_t()
        self.call("emu_memory_usage", device, byref(free), byref(total))
        return free.value

    def copy(self, stream, to, source, size, blocking=True):
        self.call("emu_copy", stream, to, source, c_size_t(size), c_bool(blocking))

    def write(self, address, data):
        self.copy(self.default_stream(), address, ctypes.create_string_buffer(data, len(data)), len(data))

    def read(self, address, size):
        buffer = ctypes.create_string_buffer(size)
        self.copy(self.default_stream(), buffer, address, size)
        return buffer.raw

    def host_function(self, stream, function):
        wrapped = HOST_FUNCTION(lambda _: function())
        self._alive.append(wrapped)
        self.call("emu_launch_host", stream, wrapped, None)

    def deferred(self, stream, poll):
        """`poll(ready_ns)` answers the end or None."""

        def ask(_, ready_ns, end):
            found = poll(ready_ns)
            if found is not None:
                end[0] = found
            return found is not None

        work = Deferred(
            BEGIN(lambda _: 1), POLL(ask), HOST_FUNCTION(lambda _: None), HOST_FUNCTION(0), None, b"deferred"
        )
        self._alive.append(work)
        self.call("emu_launch_deferred", stream, byref(work))

    def now_s(self):
        return self.library.emu_now_ns() / 1e9


class Stopwatch:
    """Host seconds since it was made."""

    def __init__(self):
        self.began = time.monotonic()

    @property
    def s(self):
        return time.monotonic() - self.began
