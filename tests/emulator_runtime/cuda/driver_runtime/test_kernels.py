"""Registered kernels and variables, launches, attributes, occupancy, modules, and looking up functions of the driver."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.mark.parametrize("release", [12, 13])
def test_launches_in_all_forms(run_cuda: Run, release: int) -> None:
    run_cuda(
        """
        first, second = register("first", "second")
        expect(launch(first), OK)
        handle = made(cuda.__getattr__("__cudaGetKernel"), first)
        assert handle == made(cuda.cudaGetFuncBySymbol, first) != made(cuda.cudaGetFuncBySymbol, second)
        expect(launch(handle), OK)  # a handle is accepted in place of a symbol
        expect(cuda.__getattr__("__cudaLaunchKernel")(handle, Dim3(1, 1, 1), Dim3(32, 1, 1), 0, 0, 0), OK)
        expect(cuda.cudaLaunchCooperativeKernel(first, Dim3(108, 1, 1), Dim3(256, 1, 1), 0, 0, 0), OK)
        expect(cuda.cudaLaunchCooperativeKernel(first, Dim3(108 * 65, 1, 1), Dim3(256, 1, 1), 0, 0, 0), TOO_LARGE)
        attributes = (c_int * 18)(2, 0, 1)  # cooperative
        config = (c_uint * 14)(1, 1, 1, 32, 1, 1)
        expect(cuda.cudaLaunchKernelExC(config, first, 0), OK)
        ctypes.c_uint64.from_buffer(config, 40).value = ctypes.addressof(attributes)
        config[12], config[0] = 1, 1 << 20
        expect(cuda.cudaLaunchKernelExC(config, first, 0), TOO_LARGE)
        attributes[2] = 0
        expect(cuda.cudaLaunchKernelExC(config, first, 0), OK)
        expect(driver.cuLaunchKernel(handle, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0), OK)
        name = ctypes.c_char_p()
        expect(driver.cuFuncGetName(byref(name), handle), OK)
        assert name.value == b"first"
        expect(cuda.cudaDeviceSynchronize(), OK)
        """,
        release=release,
    )


def test_wrong_launches_are_refused(run_cuda: Run) -> None:
    run_cuda(
        """
        kernel, = register("kernel")
        for grid in ((0, 1, 1), (1, 65536, 1), (1 << 31, 1, 1)):
            expect(launch(kernel, grid, (1, 1, 1)), INVALID_CONFIGURATION)
        for block in ((1025, 1, 1), (32, 33, 1), (1, 1, 65), (0, 1, 1)):
            expect(launch(kernel, (1, 1, 1), block), INVALID_CONFIGURATION)
        handle = made(cuda.cudaGetFuncBySymbol, kernel)
        expect(driver.cuLaunchKernel(handle, 1, 1, 1, 1025, 1, 1, 0, 0, 0, 0), INVALID_VALUE)
        expect(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0), INVALID_HANDLE)
        expect(launch(4711), INVALID_FUNCTION)
        expect(launch(0), INVALID_FUNCTION)
        expect(launch(kernel, stream=4711), INVALID_HANDLE)
        expect(launch(kernel, shared_bytes=48 * 1024), OK)
        expect(launch(kernel, shared_bytes=48 * 1024 + 1), INVALID_VALUE)
        expect(cuda.cudaFuncSetAttribute(kernel, 8, 160 * 1024), OK)
        expect(launch(kernel, shared_bytes=160 * 1024), OK)
        expect(cuda.cudaFuncSetAttribute(kernel, 8, 164 * 1024), INVALID_VALUE)
        expect(cuda.cudaFuncSetAttribute(kernel, 99, 1), INVALID_VALUE)
        expect(cuda.cudaFuncSetAttribute(4711, 8, 1), INVALID_FUNCTION)
        """
    )


def test_configurations_of_calls_are_a_stack(run_cuda: Run) -> None:
    run_cuda(
        """
        push, pop = cuda.__getattr__("__cudaPushCallConfiguration"), cuda.__getattr__("__cudaPopCallConfiguration")
        grid, block, shared, stream = Dim3(), Dim3(), c_size_t(), out()
        expect(pop(byref(grid), byref(block), byref(shared), byref(stream)), 52)
        expect(push(Dim3(1, 2, 3), Dim3(4, 5, 6), 7, 8), OK)
        expect(push(Dim3(9, 2, 3), Dim3(4, 5, 6), 7, 8), OK)
        for x in (9, 1):
            expect(pop(byref(grid), byref(block), byref(shared), byref(stream)), OK)
            assert (grid.x, grid.y, grid.z, block.x, block.y, block.z, shared.value, stream.value) == (x, 2, 3, 4, 5, 6, 7, 8)
        """
    )


def test_attributes_of_kernels(run_cuda: Run) -> None:
    """cudaFuncAttributes has 144 bytes since CUDA 12."""
    run_cuda(
        """
        kernel, = register("kernel")
        buffer = ctypes.create_string_buffer(b"\\xaa" * 256)
        expect(cuda.cudaFuncGetAttributes(buffer, kernel), OK)
        assert buffer.raw[144:256] == b"\\xaa" * 112
        number = lambda at: int.from_bytes(buffer.raw[at:at + 4], "little")
        threads, registers, ptx, binary, dynamic = map(number, (24, 28, 32, 36, 44))
        assert (threads, ptx, binary, dynamic) == (1024, 80, 80, 48 * 1024) and registers > 0
        expect(cuda.cudaFuncGetAttributes(0, kernel), INVALID_VALUE)
        expect(cuda.cudaFuncGetAttributes(buffer, 4711), INVALID_FUNCTION)
        """
    )


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "blocks"),
    [
        (32, 0, 32),
        (128, 0, 16),
        (1024, 0, 2),
        (1025, 0, 0),
        (96, 0, 21),
        (64, 20 * 1024, 7),
        (64, 163 * 1024, 1),
        (64, 164 * 1024, 0),
    ],
)
def test_occupancy_of_compute_capability_8_0(run_cuda: Run, threads: int, shared_bytes: int, blocks: int) -> None:
    """32 registers a thread: by the 2,048 threads and the 32 blocks of a multiprocessor, and its 164 KiB of shared memory, of
    which a block takes 1 KiB more than it asks for."""
    run_cuda(
        f"""
        kernel, = register("kernel")
        occupancy = made(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor, kernel, {threads}, {shared_bytes}, kind=c_int)
        assert occupancy == {blocks}
        expect(cuda.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(c_int()), kernel, 0, 0), INVALID_VALUE)
        """
    )


def test_variables(run_cuda: Run) -> None:
    run_cuda(
        """
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(("__cudaRegisterFatBinary", cuda.library))
        handle, symbol = start(None), ctypes.create_string_buffer(1)
        variable = ctypes.addressof(symbol)
        cuda.__getattr__("__cudaRegisterVar")(handle, variable, 0, ctypes.c_char_p(b"table"), 0, 64, 1, 0)
        assert made(cuda.cudaGetSymbolSize, variable, kind=c_size_t) == 64
        data, back = ctypes.create_string_buffer(bytes(range(64)), 64), ctypes.create_string_buffer(64)
        expect(cuda.cudaMemcpyToSymbol(variable, data, 64, 0, 1), OK)
        expect(cuda.cudaMemcpyFromSymbol(back, variable, 32, 32, 2), OK)
        assert back.raw[:32] == data.raw[32:]
        address = made(cuda.cudaGetSymbolAddress, variable)
        expect(cuda.cudaMemcpy(back, address, 64, 2), OK)
        assert back.raw == data.raw
        expect(cuda.cudaSetDevice(1), OK)
        assert made(cuda.cudaGetSymbolAddress, variable) != address  # each device has its own
        expect(cuda.cudaMemcpyToSymbol(variable, data, 64, 1, 1), INVALID_VALUE)
        expect(cuda.cudaMemcpyToSymbol(variable, data, 64, 0, 2), INVALID_COPY_DIRECTION)
        expect(cuda.cudaMemcpyToSymbol(4711, data, 64, 0, 1), INVALID_SYMBOL)
        expect(cuda.cudaGetSymbolAddress(byref(out()), 4711), INVALID_SYMBOL)
        cuda.__getattr__("__cudaUnregisterFatBinary")(handle)
        expect(cuda.cudaGetSymbolAddress(byref(out()), variable), INVALID_SYMBOL)
        """,
        devices=2,
    )


def test_kernels_of_an_unloaded_binary_are_unknown(run_cuda: Run) -> None:
    run_cuda(
        """
        kernel, = register("kernel")
        expect(launch(kernel), OK)
        cuda.__getattr__("__cudaUnregisterFatBinary")(kept[-1])
        expect(launch(kernel), INVALID_FUNCTION)
        """
    )


def cubin(kernels: dict[str, tuple[int, int]], variables: dict[str, int]) -> bytes:
    """An ELF file with kernels (registers, static shared memory) and variables (bytes), as ptxas writes them."""
    names, strings = b"\0", b"\0"
    sections: list[tuple[int, int, int, int, int, int]] = [(0, 0, 0, 0, 0, 0)]  # name, type, offset, size, link, info
    for kernel, (registers, shared) in kernels.items():
        sections.append((len(names), 1, 64, 0, 0, registers << 24))
        names += f".text.{kernel}\0".encode()
        sections.append((len(names), 8, 64, shared, 0, 0))
        names += f".nv.shared.{kernel}\0".encode()
    symbols = b"\0" * 24
    for variable, size in variables.items():
        symbols += struct.pack("<IBBHQQ", len(strings), 0x11, 0, 1, 0, size)
        strings += f"{variable}\0".encode()
    body = symbols + strings
    symbol_at, string_at = 64, 64 + len(symbols)
    sections.append((len(names), 2, symbol_at, len(symbols), len(sections) + 1, 0))
    names += b".symtab\0"
    sections.append((len(names), 3, string_at, len(strings), 0, 0))
    names += b".strtab\0"
    sections.append((len(names), 3, 64 + len(body), len(names) + 10, 0, 0))
    names += b".shstrtab\0"
    body += names
    body += b"\0" * (-len(body) % 8)
    header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    header += struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(sections), len(sections) - 1
    )
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", n, t, 0, 0, at, size, link, info, 1, 0) for n, t, at, size, link, info in sections
    )
    return header + body + table


@pytest.fixture
def cubin_file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.cubin"
    path.write_bytes(cubin({"triton_add": (96, 2048), "triton_mul": (255, 0)}, {"table": 4096}))
    return path


def test_a_cubin_tells_its_kernels_and_what_they_need(run_cuda: Run, cubin_file: Path) -> None:
    run_cuda(
        f"""
        expect(cuda.cudaSetDevice(0), OK)
        data = ctypes.create_string_buffer(open({str(cubin_file)!r}, "rb").read())
        module = made(driver.cuModuleLoadData, data)
        add = made(driver.cuModuleGetFunction, module, ctypes.c_char_p(b"triton_add"))
        attribute = lambda number, kernel: made(driver.cuFuncGetAttribute, number, kernel, kind=c_int)
        assert (attribute(4, add), attribute(1, add)) == (96, 2048)
        mul = made(driver.cuModuleGetFunction, module, ctypes.c_char_p(b"triton_mul"))
        assert attribute(0, mul) == 256  # threads for which the registers suffice
        assert made(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor, mul, 256, 0, kind=c_int) == 1
        expect(driver.cuModuleGetFunction(byref(out()), module, ctypes.c_char_p(b"triton_div")), NOT_FOUND)
        expect(driver.cuLaunchKernel(add, 4, 1, 1, 128, 1, 1, 0, 0, 0, 0), OK)
        count = made(driver.cuModuleGetFunctionCount, module, kind=c_uint)
        assert count == 2
        address, size = c_uint64(), c_size_t()
        expect(driver.cuModuleGetGlobal_v2(byref(address), byref(size), module, ctypes.c_char_p(b"table")), OK)
        assert size.value == 4096 and address.value
        expect(driver.cuModuleGetGlobal_v2(byref(address), 0, module, ctypes.c_char_p(b"other")), NOT_FOUND)
        assert made(driver.cuFuncGetModule, add) == module
        expect(driver.cuModuleUnload(module), OK)
        expect(driver.cuModuleUnload(module), INVALID_HANDLE)
        expect(driver.cuModuleGetFunction(byref(out()), module, ctypes.c_char_p(b"triton_add")), INVALID_HANDLE)
        expect(driver.cuFuncGetModule(byref(out()), add), NOT_FOUND)
        library = made(cuda.cudaLibraryLoadFromFile, ctypes.c_char_p({str(cubin_file)!r}.encode()), 0, 0, 0, 0, 0, 0)
        assert made(cuda.cudaLibraryGetKernelCount, library, kind=c_uint) == 2
        assert made(cuda.cudaLibraryGetKernel, library, ctypes.c_char_p(b"triton_add")) == add
        """
    )


@pytest.mark.parametrize("missing", [1, 64, 400])
def test_a_file_that_is_cut_off_is_no_image(run_cuda: Run, cubin_file: Path, missing: int) -> None:
    whole = cubin_file.read_bytes()
    cubin_file.write_bytes(whole[:-missing])
    run_cuda(
        f"""
        expect(cuda.cudaSetDevice(0), OK)
        expect(driver.cuModuleLoad(byref(out()), ctypes.c_char_p({str(cubin_file)!r}.encode())), INVALID_IMAGE)
        """
    )


def test_ptx_fat_binaries_and_other_images(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(cuda.cudaSetDevice(0), OK)
        text = lambda value: ctypes.c_char_p(value)
        code = b"// made\\n.version 8.0\\n.visible .entry one(\\n.param .u64 p\\n) { ret; }\\n.entry two { ret; }"
        ptx = ctypes.create_string_buffer(code)
        module = made(driver.cuModuleLoadData, ptx)
        assert made(driver.cuModuleGetFunctionCount, module, kind=c_uint) == 2
        made(driver.cuModuleGetFunction, module, text(b"two"))
        expect(driver.cuModuleGetFunction(byref(out()), module, text(b"three")), NOT_FOUND)
        fat = made(driver.cuLibraryLoadData, ctypes.create_string_buffer(bytes.fromhex("50ed55ba") + bytes(60)), 0, 0, 0, 0, 0, 0)
        made(driver.cuLibraryGetKernel, fat, text(b"any_name"))
        expect(driver.cuLibraryGetKernelCount(byref(c_uint()), fat), NOT_SUPPORTED)
        for wrong in (b"hello", b"\\x7fELF" + bytes(100), bytes(64)):
            expect(driver.cuModuleLoadData(byref(out()), ctypes.create_string_buffer(wrong, 256)), INVALID_IMAGE)
        expect(driver.cuModuleLoadData(byref(out()), 0), INVALID_VALUE)
        expect(driver.cuModuleLoad(byref(out()), text(b"/nowhere")), 301)
        expect(driver.cuModuleGetFunction(byref(out()), 4711, text(b"one")), INVALID_HANDLE)
        """
    )


def test_functions_of_the_driver_by_name_and_version(run_cuda: Run) -> None:
    """cuGetProcAddress: CUDA 2.0 had cuMemAlloc, 3.2 changed it; cuMemCreate came with 10.2."""
    run_cuda(
        """
        address_of = lambda name: ctypes.cast(getattr(driver.library, name), ctypes.c_void_p).value
        def look_up(name, version, flags=0):
            function, state = out(), c_int(-1)
            status = driver.cuGetProcAddress_v2(ctypes.c_char_p(name), byref(function), version, flags, byref(state))
            return status, state.value, function.value
        assert look_up(b"cuMemAlloc", 13020) == (OK, 0, address_of("cuMemAlloc_v2"))
        assert look_up(b"cuMemAlloc_v2", 13020) == (OK, 0, address_of("cuMemAlloc_v2"))
        assert look_up(b"cuMemCreate", 10010) == (NOT_FOUND, 2, None)
        assert look_up(b"cuMemCreate", 10020) == (OK, 0, address_of("cuMemCreate"))
        assert look_up(b"cuStreamGetCaptureInfo", 10010)[2] == address_of("cuStreamGetCaptureInfo")
        assert look_up(b"cuStreamGetCaptureInfo", 12000)[2] == address_of("cuStreamGetCaptureInfo_v2")
        assert look_up(b"cuStreamGetCaptureInfo", 13000)[2] == address_of("cuStreamGetCaptureInfo_v3")
        assert look_up(b"cuGraphInstantiate", 11000)[2] == address_of("cuGraphInstantiate_v2")
        assert look_up(b"cuGraphInstantiate", 12000)[2] == address_of("cuGraphInstantiateWithFlags")
        assert look_up(b"cuNever", 13020) == (NOT_FOUND, 1, None)
        assert look_up(b"printf", 13020) == (NOT_FOUND, 1, None)
        assert look_up(b"", 13020)[0] == INVALID_VALUE
        assert look_up(b"cuInit", 13020, 4)[0] == INVALID_VALUE
        expect(driver.cuGetProcAddress_v2(ctypes.c_char_p(b"cuInit"), 0, 13020, 0, 0), INVALID_VALUE)

        function, state = out(), c_int(-1)
        expect(cuda.cudaGetDriverEntryPointByVersion(ctypes.c_char_p(b"cuMemMap"), byref(function), 12000, 0, byref(state)), OK)
        assert (state.value, function.value) == (0, address_of("cuMemMap"))
        expect(cuda.cudaGetDriverEntryPoint(ctypes.c_char_p(b"cuNever"), byref(function), 0, byref(state)), OK)
        assert (state.value, function.value) == (1, None)
        expect(cuda.cudaGetDriverEntryPoint(ctypes.c_char_p(b"cuNever"), byref(function), 0, 0), NOT_FOUND)
        """
    )


def test_internal_tables_are_not_answered(run_cuda: Run) -> None:
    printed = run_cuda(
        """
        expect(driver.cuInit(0), OK)
        for _ in range(2):
            expect(driver.cuGetExportTable(byref(out()), ctypes.create_string_buffer(16)), NOT_SUPPORTED)
        """
    )
    assert "cuGetExportTable" in printed
    assert (
        printed.count("a statically linked CUDA runtime can't be emulated: compile the program with nvcc -cudart") == 1
    )
