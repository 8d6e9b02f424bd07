"""Kernels of PyTorch that the core executes, by their names and with parameters as PyTorch's have, for the test programs."""

import ctypes
import struct
from ctypes import c_size_t, c_uint, c_void_p

ADD_NUMBER = b"vectorized_elementwise_kernelILi2ENS0_21CUDAFunctorOnSelf_addIlEESt5arrayIPcLm2EEEEviT0_T1_"
ADD_TENSOR = b"unrolled_elementwise_kernelINS0_15CUDAFunctor_addIlEESt5arrayIPcLm3EELi4E"
COMPARE = b"unrolled_elementwise_kernelINS0_14CompareFunctorIlEESt5arrayIPcLm3EELi4E"
COUNT = b"_ZN3cub6detail6reduce28DeviceReduceSingleTileKernelIN2at6native9NonZeroOpIbEEPKbE"
CONCATENATE = b"CatArrayBatchedCopy_contigINS1_10OpaqueTypeILj8EEEjLi1ELi128ELi1EEEvPT_"


class Kernels:
    """Launches on streams of a Core, by default on its default stream."""

    def __init__(self, core):
        self._core = core

    def launch(self, name, *parameters, grid=(1, 1, 1), stream=None):
        """Parameters: what they are in memory."""
        kept = [ctypes.create_string_buffer(one, len(one)) for one in parameters]
        pointers = (c_void_p * len(kept))(*(ctypes.addressof(one) for one in kept))
        kernel = c_void_p(self._core.library.emu_kernel_named(name))
        stream = stream or self._core.default_stream()
        self._core.call("emu_launch_kernel", stream, kernel, (c_uint * 3)(*grid), (c_uint * 3)(1, 1, 1), pointers)
        for one in kept:
            ctypes.memset(one, 255, len(one))  # the program's memory may be used for something else now

    def integers(self, *values):
        """Device memory with these, as from another process: kernels that run later aren't supposed to change them."""
        memory = self._core.allocate(512)
        self._core.write(memory, struct.pack(f"{len(values)}q", *values))
        self._core.library.emu_memory_written(memory, c_size_t(8 * len(values)))
        return memory

    def read(self, memory, count=1):
        data = b"".join(self._core.read(c_void_p(memory.value + 8 * number), 8) for number in range(count))
        return struct.unpack(f"{count}q", data)


def integer(number):
    return struct.pack("i", number)


def longs(*numbers):
    return struct.pack(f"{len(numbers)}q", *numbers)


def tensors(*addresses):
    return struct.pack(f"{len(addresses)}Q", *(address.value for address in addresses))


def concatenation(*inputs, sizes):
    offsets = [sum(sizes[:number]) for number in range(len(sizes))]
    rest = [0] * (128 - len(sizes))
    addresses = [address.value for address in inputs]
    return struct.pack("128Q384I", *addresses, *rest, *offsets, *rest, *sizes, *rest, *sizes, *rest)
