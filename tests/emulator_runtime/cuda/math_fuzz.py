"""Random calls of the emulated mathematical libraries: whatever a program passes, the answer is a status.

    random_calls(functions(compiler, sources, folders), "libcudnn.so.9", count, seed)

Handles may be anything. Where the interface says that an array or a result is at an address, it is NULL or there is memory.
"""

import ctypes
import random
import re
import subprocess

from math_calls import LIBRARIES

PROTOTYPE = re.compile(r'visibility\("default"\)\)\)\s+(?:cudnn|cublas)_status\s+(\w+)\(([^)]*)\)\s*\{')
FOLLOWED = {"alpha", "beta", "alpha1", "alpha2", "value", "values", "result", "message"}
"""Untyped pointers to memory of the host."""
COPIES = re.compile(r"cublas[GS]et(Matrix|Vector)Async")
"""Functions that copy from and to any address."""
NUMBERS = (-(2**31), -1, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 64, 68, 4096)
NAMES = (200, 202, 300, 401, 700, 801, 901, 903, 906, 1000, 1300)
"""Of attributes of cuDNN's descriptors."""
ROOM = 1 << 18


def functions(compiler, sources, folders):
    """(name, [(type, name of the parameter)]) of all functions that the sources export."""
    found = []
    for source in sources:
        command = [compiler, "-E", "-P", *(f"-I{folder}" for folder in folders), str(source)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, parameters in PROTOTYPE.findall(text):
            parsed = [] if parameters.strip() == "void" else [_parameter(each) for each in parameters.split(",")]
            if not COPIES.match(name):
                found.append((name, parsed))
    return found


def _parameter(text):
    match = re.match(r"\s*(.*?)(\w+)\s*$", text, re.DOTALL)
    return " ".join(match[1].split()), match[2]


class _Arguments:
    def __init__(self, chance):
        self.chance = chance
        self.memory = ctypes.create_string_buffer(ROOM)
        self.handles = []

    def refill(self):
        """Small numbers, and handles where arrays of them are read."""
        values = [self.chance.choice(NUMBERS) for _ in range(64)]
        if self.handles:
            values[: len(values) // 2] = [self.chance.choice(self.handles) for _ in range(len(values) // 2)]
        self.chance.shuffle(values)
        array = (ctypes.c_int64 * len(values))(*values)
        ctypes.memmove(self.memory, array, ctypes.sizeof(array))

    def address(self):
        return self.chance.choice((None, ctypes.addressof(self.memory)))

    def handle(self):
        known = [self.chance.choice(self.handles)] * 6 if self.handles else []
        return self.chance.choice([None, 0x1234, 0xDEADBEEF000, ctypes.addressof(self.memory), *known])

    def make(self, type_, name):
        if "*" not in type_:
            real = {"double": ctypes.c_double, "float": ctypes.c_float}.get(type_)
            if real:
                return real(self.chance.choice((-1.0, 0.0, 0.5, 1.0, 1e300)))
            return ctypes.c_int64(self.chance.choice(NUMBERS + NAMES))
        untyped = type_ in ("void *", "const void *") and name not in FOLLOWED
        return ctypes.c_void_p(self.handle() if untyped else self.address())


def random_calls(known, library, count, seed):
    """Makes `count` calls; answers how many there were by status."""
    chance = random.Random(seed)
    loaded = ctypes.CDLL(str(LIBRARIES / library))
    arguments, answers = _Arguments(chance), {}
    makers = [entry for entry in known if "Create" in entry[0]]
    for number in range(count):
        name, parameters = chance.choice(makers if number % 8 == 0 else known)
        if number % 16 == 0:
            arguments.refill()
        status = getattr(loaded, name)(*(arguments.make(*each) for each in parameters))
        answers[status] = answers.get(status, 0) + 1
        if status == 0 and "Create" in name:
            arguments.handles.append(ctypes.c_uint64.from_buffer(arguments.memory).value)
            del arguments.handles[:-64]
    return answers
