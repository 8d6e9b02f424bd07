"""Allocations, pools, virtual memory, copies, and what is known of an address."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_memory_ends_where_the_device_does(run_cuda: Run) -> None:
    run_cuda(
        """
        free, total = c_size_t(), c_size_t()
        expect(cuda.cudaMemGetInfo(byref(free), byref(total)), OK)
        assert (free.value, total.value) == (1023 * MIB, 1024 * MIB)
        big = made(cuda.cudaMalloc, 1000 * MIB)
        expect(cuda.cudaMalloc(byref(out()), 24 * MIB), OUT_OF_MEMORY)
        expect(cuda.cudaGetLastError(), OUT_OF_MEMORY)
        expect(cuda.cudaMalloc(byref(out()), (1 << 64) - 1), OUT_OF_MEMORY)
        rest = made(cuda.cudaMalloc, 23 * MIB)
        expect(cuda.cudaMemGetInfo(byref(free), byref(total)), OK)
        assert free.value == 0
        expect(cuda.cudaMalloc(byref(out()), 1), OUT_OF_MEMORY)
        expect(cuda.cudaFree(big), OK)
        expect(cuda.cudaFree(rest), OK)
        """
    )


def test_what_is_freed_must_be_the_base_of_an_allocation(run_cuda: Run) -> None:
    run_cuda(
        """
        address, host = made(cuda.cudaMalloc, 4096), made(cuda.cudaMallocHost, 4096)
        expect(cuda.cudaFree(address + 256), INVALID_VALUE)
        expect(cuda.cudaFree(host), INVALID_VALUE)
        expect(cuda.cudaFreeHost(address), INVALID_VALUE)
        expect(cuda.cudaFree(address), OK)
        expect(cuda.cudaFree(address), INVALID_VALUE)
        expect(cuda.cudaFreeHost(host), OK)
        expect(cuda.cudaFreeHost(host), INVALID_VALUE)
        expect(cuda.cudaFree(0), OK)
        expect(cuda.cudaFree(4711), INVALID_VALUE)
        """
    )


def test_pinned_memory_is_the_hosts(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(cuda.cudaMallocHost(byref(out()), 1 << 50), OUT_OF_MEMORY)
        expect(cuda.cudaHostAlloc(byref(out()), 4096, 8), INVALID_VALUE)
        expect(driver.cuMemHostAlloc(byref(out()), 1 << 50, 0), OUT_OF_MEMORY)
        expect(cuda.cudaHostRegister(4096, 1 << 30, 0), INVALID_VALUE)  # there is no memory
        """
    )


def test_no_bytes(run_cuda: Run) -> None:
    run_cuda(
        """
        address = out()
        address.value = 5
        expect(cuda.cudaMalloc(byref(address), 0), OK)
        assert address.value is None
        expect(cuda.cudaMalloc(0, 16), INVALID_VALUE)
        expect(cuda.cudaMallocManaged(byref(address), 0, 1), INVALID_VALUE)
        expect(driver.cuMemAlloc_v2(byref(c_uint64()), 0), INVALID_VALUE)
        expect(cuda.cudaMemcpy(0, 0, 0, 1), OK)
        expect(cuda.cudaMemset(0, 0, 0), OK)
        """
    )


def test_data_makes_the_round_trip_by_each_kind_of_copy(run_cuda: Run) -> None:
    run_cuda(
        """
        data, back = ctypes.create_string_buffer(bytes(range(256)) * 16, 4096), ctypes.create_string_buffer(4096)
        one, other, pinned = made(cuda.cudaMalloc, 4096), made(cuda.cudaMalloc, 4096), made(cuda.cudaMallocHost, 4096)
        expect(cuda.cudaMemcpy(one, data, 4096, 1), OK)
        expect(cuda.cudaMemcpy(other, one, 4096, 3), OK)
        expect(cuda.cudaMemcpyAsync(pinned, other, 4096, 2, 0), OK)
        expect(cuda.cudaDeviceSynchronize(), OK)
        expect(cuda.cudaMemcpy(back, pinned, 4096, 0), OK)
        assert back.raw == data.raw
        expect(cuda.cudaMemset(other, 0x41, 4096), OK)
        expect(cuda.cudaMemcpy(back, other, 4096, 4), OK)
        assert back.raw == b"A" * 4096
        """
    )


def test_host_memory_without_the_permission_is_refused(run_cuda: Run) -> None:
    run_cuda(
        """
        import mmap
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        area = mmap.mmap(-1, 1 << 20)
        host, device, page = ctypes.addressof(ctypes.c_char.from_buffer(area)), made(cuda.cudaMalloc, 1 << 20), mmap.PAGESIZE
        permit = lambda at, size, protection: expect(libc.mprotect(at, size, protection), OK)

        def statuses(at, size):
            return cuda.cudaMemcpy(device, at, size, 1), cuda.cudaMemcpyAsync(at, device, size, 2, 0)

        assert statuses(host, 1 << 20) == (OK, OK)
        permit(host, page, mmap.PROT_READ)
        assert statuses(host, 1 << 20) == (OK, INVALID_VALUE)
        permit(host, page, 0)
        assert statuses(host, page) == statuses(host, 1 << 20) == statuses(host + page - 1, 2) == (INVALID_VALUE, INVALID_VALUE)
        expect(cuda.cudaHostRegister(host, 1 << 20, 0), INVALID_VALUE)
        assert statuses(host + page, (1 << 20) - page) == (OK, OK)
        permit(host + (1 << 20) - page, page, 0)
        assert statuses(host + page, page) == (OK, OK)
        assert statuses(host + page, (1 << 20) - page) == (INVALID_VALUE, INVALID_VALUE)
        expect(cuda.cudaGetLastError(), INVALID_VALUE)
        expect(cuda.cudaDeviceSynchronize(), OK)
        """
    )


def test_wrong_copies_are_refused(run_cuda: Run) -> None:
    run_cuda(
        """
        host = ctypes.create_string_buffer(8192)
        address = made(cuda.cudaMalloc, 4096)
        expect(cuda.cudaMemcpy(address, host, 64, 5), INVALID_COPY_DIRECTION)
        expect(cuda.cudaMemcpy(address, host, 64, -1), INVALID_COPY_DIRECTION)
        expect(cuda.cudaMemcpy(address, host, 8192, 1), INVALID_VALUE)
        expect(cuda.cudaMemcpy(host, host, 64, 1), INVALID_VALUE)
        expect(cuda.cudaMemcpy(host, 4711, 64, 2), INVALID_VALUE)
        expect(cuda.cudaMemcpy(0, host, 64, 1), INVALID_VALUE)
        expect(cuda.cudaMemcpyAsync(address, host, 64, 1, 12345), INVALID_HANDLE)
        expect(cuda.cudaMemset(address, 1, 4097), INVALID_VALUE)
        expect(cuda.cudaMemset(host, 1, 4), INVALID_VALUE)
        expect(cuda.cudaMemcpyPeer(address, 3, address, 0, 16), INVALID_DEVICE)
        """
    )


def test_copies_from_and_to_memory_that_is_not_there_are_refused(run_cuda: Run) -> None:
    """A program may read an address from a device, where no kernel has computed one."""
    run_cuda(
        """
        buffer, host = made(cuda.cudaMalloc, 64 * MIB), (ctypes.c_char * 4096)()
        freed = made(cuda.cudaMalloc, 64 * MIB)
        expect(cuda.cudaFree(freed), OK)
        for address in (freed + 4, freed + 32 * MIB, 8, 1 << 47, 1 << 63, (1 << 64) - 8192, (1 << 64) - 2):
            for count in (1, 4096):
                for function in (cuda.cudaMemcpy, cuda.cudaMemcpyAsync):
                    expect(function(buffer, address, count, 1, 0), INVALID_VALUE)
                    expect(function(address, buffer, count, 2, 0), INVALID_VALUE)
                    expect(function(host, address, count, 4, 0), INVALID_VALUE)
                    expect(function(address, host, count, 4, 0), INVALID_VALUE)
        expect(cuda.cudaMemcpyAsync(buffer, host, 4096, 4, 0), OK)
        expect(cuda.cudaMemcpyAsync(host, buffer, 4096, 4, 0), OK)
        """
    )


def test_a_captured_copy_from_memory_that_is_gone_is_left_out(run_cuda: Run) -> None:
    run_cuda(
        """
        import mmap
        buffer, stream = made(cuda.cudaMalloc, 4096), made(cuda.cudaStreamCreate)
        source = mmap.mmap(-1, 4096)
        view = ctypes.c_char.from_buffer(source)
        address = ctypes.addressof(view)
        expect(cuda.cudaStreamBeginCapture(stream, 0), OK)
        expect(cuda.cudaMemcpyAsync(buffer, address, 4096, 1, stream), OK)
        graph = out()
        expect(cuda.cudaStreamEndCapture(stream, byref(graph)), OK)
        executable = made(cuda.cudaGraphInstantiate, graph, 0)
        del view
        source.close()
        expect(cuda.cudaGraphLaunch(executable, stream), OK)
        expect(cuda.cudaStreamSynchronize(stream), OK)
        """
    )


def test_rows(run_cuda: Run) -> None:
    run_cuda(
        """
        address, pitch = out(), c_size_t()
        expect(cuda.cudaMallocPitch(byref(address), byref(pitch), 100, 4), OK)
        assert pitch.value == 512
        data = ctypes.create_string_buffer(b"".join(bytes([i]) * 100 for i in range(1, 5)), 400)
        back = ctypes.create_string_buffer(400)
        expect(cuda.cudaMemcpy2D(address, pitch, data, 100, 100, 4, 1), OK)
        expect(cuda.cudaMemcpy2DAsync(back, 100, address, pitch, 100, 4, 2, 0), OK)
        assert back.raw == data.raw
        expect(cuda.cudaMemset2D(address, pitch, 7, 50, 4), OK)
        expect(cuda.cudaMemcpy2D(back, 100, address, pitch, 100, 4, 2), OK)
        assert back.raw[:100] == b"\\x07" * 50 + b"\\x01" * 50
        expect(cuda.cudaMemcpy2D(address, 99, data, 100, 100, 4, 1), 12)
        expect(cuda.cudaMemcpy2D(address, pitch, data, 100, 100, 5, 1), INVALID_VALUE)
        expect(cuda.cudaMemset2D(address, pitch, 7, 50, 5), INVALID_VALUE)
        expect(cuda.cudaMemset2D(address, 1 << 62, 7, 50, 1 << 62), INVALID_VALUE)
        """
    )


@pytest.mark.parametrize(("release", "size"), [(12, 24), (13, 88)])
def test_attributes_of_addresses(run_cuda: Run, release: int, size: int) -> None:
    """The sizes are those of cudaPointerAttributes in CUDA 12 and 13."""
    run_cuda(
        f"""
        attributes = ctypes.create_string_buffer(256)
        def of(address):
            ctypes.memset(attributes, 0xaa, 256)
            expect(cuda.cudaPointerGetAttributes(attributes, address), OK)
            assert attributes.raw[{size}:] == b"\\xaa" * (256 - {size})
            number = lambda at, n: int.from_bytes(attributes.raw[at:at + n], "little", signed=True)
            return number(0, 4), number(4, 4), number(8, 8), number(16, 8)
        expect(cuda.cudaSetDevice(1), OK)
        address, host = made(cuda.cudaMalloc, 4096), made(cuda.cudaMallocHost, 4096)
        managed = made(cuda.cudaMallocManaged, 4096, 1)
        assert of(address + 8) == (2, 1, address + 8, 0)
        assert of(host) == (1, 1, host, host)
        assert of(managed) == (3, 1, managed, managed)
        own = ctypes.create_string_buffer(64)
        assert of(ctypes.addressof(own)) == (0, -2, 0, ctypes.addressof(own))
        expect(cuda.cudaHostRegister(own, 64, 0), OK)
        assert of(ctypes.addressof(own))[0] == 1
        expect(cuda.cudaHostRegister(own, 64, 0), ALREADY_REGISTERED)
        expect(cuda.cudaHostUnregister(own), OK)
        expect(cuda.cudaHostUnregister(own), NOT_REGISTERED)
        expect(cuda.cudaPointerGetAttributes(0, address), INVALID_VALUE)
        """,
        release=release,
        devices=2,
    )


def test_pointer_attributes_of_the_driver(run_cuda: Run) -> None:
    run_cuda(
        """
        address = made(cuda.cudaMalloc, 4096)
        attribute = lambda number, kind: made(driver.cuPointerGetAttribute, number, address + 512, kind=kind)
        assert attribute(2, c_uint) == 2 and attribute(9, c_int) == 0 and attribute(8, c_int) == 0
        assert (attribute(11, c_uint64), attribute(12, c_size_t)) == (address, 4096)
        assert attribute(7, c_uint64) > 0
        expect(driver.cuPointerGetAttribute(byref(c_uint64()), 4, address), INVALID_VALUE)
        expect(driver.cuPointerGetAttribute(byref(c_uint64()), 2, 4711), INVALID_VALUE)
        expect(driver.cuPointerGetAttribute(byref(c_uint64()), 99, address), INVALID_VALUE)
        ordinal, kind = c_int(), c_uint(9)
        numbers, targets = (c_int * 2)(9, 2), (ctypes.c_void_p * 2)(ctypes.addressof(ordinal), ctypes.addressof(kind))
        expect(driver.cuPointerGetAttributes(2, numbers, targets, 4711), OK)
        assert (ordinal.value, kind.value) == (-2, 0)
        base, size = c_uint64(), c_size_t()
        expect(driver.cuMemGetAddressRange_v2(byref(base), byref(size), address + 4095), OK)
        assert (base.value, size.value) == (address, 4096)
        expect(driver.cuMemGetAddressRange_v2(byref(base), byref(size), address + 4096), NOT_FOUND)
        """
    )


def test_pools(run_cuda: Run) -> None:
    run_cuda(
        """
        pool, same = made(cuda.cudaDeviceGetDefaultMemPool, 0), made(cuda.cudaDeviceGetMemPool, 0)
        assert pool == same == made(driver.cuDeviceGetDefaultMemPool, 0)
        value = c_uint64()
        def attribute(number):
            expect(cuda.cudaMemPoolGetAttribute(pool, number, byref(value)), OK)
            return value.value
        one, other = made(cuda.cudaMallocAsync, 3 * MIB, 0), made(cuda.cudaMallocAsync, MIB, 0)
        assert (attribute(5), attribute(7), attribute(8)) == (4 * MIB, 4 * MIB, 4 * MIB)
        expect(cuda.cudaFreeAsync(one, 0), OK)
        expect(cuda.cudaFreeAsync(one, 0), INVALID_VALUE)
        assert (attribute(7), attribute(8)) == (MIB, 4 * MIB)
        expect(cuda.cudaFree(other), OK)
        assert attribute(7) == 0
        expect(cuda.cudaMemPoolSetAttribute(pool, 8, byref(c_uint64(1))), INVALID_VALUE)
        expect(cuda.cudaMemPoolSetAttribute(pool, 8, byref(c_uint64(0))), OK)
        expect(cuda.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 63))), OK)
        assert (attribute(4), attribute(8)) == (1 << 63, 0)
        expect(cuda.cudaMemPoolGetAttribute(pool, 77, byref(value)), INVALID_VALUE)
        expect(cuda.cudaMemPoolGetAttribute(4711, 7, byref(value)), INVALID_VALUE)
        expect(cuda.cudaMemPoolDestroy(pool), INVALID_VALUE)
        expect(cuda.cudaMallocAsync(byref(out()), 1024 * MIB, 0), OUT_OF_MEMORY)
        """
    )


def test_memory_is_freed_when_its_stream_gets_there(run_cuda: Run) -> None:
    """A host function holds the stream up; a copy behind it still finds the data."""
    run_cuda(
        """
        import threading
        go = threading.Event()
        wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: go.wait(10))
        stream, back = made(cuda.cudaStreamCreate), made(cuda.cudaMallocHost, 4096)
        data = ctypes.create_string_buffer(b"x" * 4096, 4096)
        address = made(cuda.cudaMallocAsync, 4096, stream)
        expect(cuda.cudaMemcpyAsync(address, data, 4096, 1, stream), OK)
        expect(cuda.cudaLaunchHostFunc(stream, wait, 0), OK)
        expect(cuda.cudaMemcpyAsync(back, address, 4096, 2, stream), OK)
        expect(cuda.cudaFreeAsync(address, stream), OK)
        expect(cuda.cudaPointerGetAttributes(ctypes.create_string_buffer(88), address), OK)
        go.set()
        expect(cuda.cudaStreamSynchronize(stream), OK)
        assert ctypes.string_at(back, 4096) == data.raw
        expect(cuda.cudaFreeAsync(address, stream), INVALID_VALUE)
        """
    )


def test_a_pool_of_the_program(run_cuda: Run) -> None:
    run_cuda(
        """
        properties = (c_int * 22)(1, 0, 1, 1)  # pinned memory, no handles, of device 1
        pool = made(cuda.cudaMemPoolCreate, properties)
        expect(cuda.cudaDeviceSetMemPool(0, pool), INVALID_VALUE)
        expect(cuda.cudaDeviceSetMemPool(1, pool), OK)
        expect(cuda.cudaSetDevice(1), OK)
        address = made(cuda.cudaMallocAsync, MIB, 0)
        value = c_uint64()
        expect(cuda.cudaMemPoolGetAttribute(pool, 7, byref(value)), OK)
        assert value.value == MIB
        expect(cuda.cudaMemPoolDestroy(pool), OK)
        expect(cuda.cudaMemPoolDestroy(pool), INVALID_VALUE)
        expect(cuda.cudaFreeAsync(address, 0), OK)
        assert made(cuda.cudaDeviceGetMemPool, 1) == made(cuda.cudaDeviceGetDefaultMemPool, 1)
        properties[1] = 1  # a handle for other processes
        expect(cuda.cudaMemPoolCreate(byref(out()), properties), NOT_SUPPORTED)
        expect(cuda.cudaMemPoolCreate(byref(out()), 0), INVALID_VALUE)
        """,
        devices=2,
    )


def test_virtual_memory(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(cuda.cudaSetDevice(0), OK)
        two = 2 * MIB
        properties = (c_int * 8)(1, 1, 1, 0)  # pinned, exportable as a file, of device 0
        granularity = made(driver.cuMemGetAllocationGranularity, properties, 0, kind=c_size_t)
        assert granularity == two
        space = made(driver.cuMemAddressReserve, 8 * two, 0, 0, 0, kind=c_uint64)
        memory = made(driver.cuMemCreate, two, properties, 0, kind=c_uint64)
        expect(driver.cuMemCreate(byref(c_uint64()), two + 1, properties, 0), INVALID_VALUE)
        expect(driver.cuMemMap(space, two, 0, memory, 0), OK)
        expect(driver.cuMemMap(space, two, 0, memory, 0), INVALID_VALUE)
        expect(driver.cuMemMap(space + two, two, 0, memory, 0), OK)
        access = (c_int * 3)(1, 0, 3)
        expect(driver.cuMemSetAccess(space, 2 * two, access, 1), OK)
        expect(driver.cuMemSetAccess(space, 3 * two, access, 1), INVALID_VALUE)
        data = ctypes.create_string_buffer(b"x" * 64, 64)
        expect(cuda.cudaMemcpy(space + two - 32, data, 64, 1), OK)  # over both mappings
        expect(cuda.cudaMemcpy(space + 2 * two - 32, data, 64, 1), INVALID_VALUE)
        expect(cuda.cudaFree(space), INVALID_VALUE)
        expect(driver.cuMemRelease(memory), OK)
        expect(driver.cuMemUnmap(space, two), OK)
        expect(driver.cuMemUnmap(space, two), INVALID_VALUE)
        expect(driver.cuMemAddressFree(space, 8 * two), INVALID_VALUE)
        expect(driver.cuMemUnmap(space + two, two), OK)
        expect(driver.cuMemAddressFree(space, 8 * two), OK)
        expect(driver.cuMemRelease(memory), INVALID_VALUE)
        expect(driver.cuMemCreate(byref(c_uint64()), 1024 * MIB, properties, 0), OUT_OF_MEMORY)
        properties[1] = 8  # a fabric's handle
        expect(driver.cuMemCreate(byref(c_uint64()), two, properties, 0), NOT_SUPPORTED)
        """
    )


def test_memory_is_not_shared_with_other_processes(run_cuda: Run) -> None:
    printed = run_cuda(
        """
        address, handle = made(cuda.cudaMalloc, 4096), ctypes.create_string_buffer(64)
        expect(cuda.cudaIpcGetMemHandle(handle, address), NOT_SUPPORTED)
        expect(cuda.cudaIpcOpenMemHandle(byref(out()), handle, 1), NOT_SUPPORTED)
        """
    )
    assert printed.count("cudaIpcGetMemHandle") == 1
