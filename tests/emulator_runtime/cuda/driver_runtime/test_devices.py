"""Devices, their attributes and properties, contexts, limits, peers, errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


def test_without_settings_there_is_no_device(run_cuda: Run) -> None:
    run_cuda(
        """
        count = c_int(7)
        expect(cuda.cudaGetDeviceCount(byref(count)), NO_DEVICE)
        assert count.value == 0
        expect(cuda.cudaGetLastError(), NO_DEVICE)
        expect(driver.cuInit(0), NO_DEVICE)
        """,
        devices=0,
    )


def test_an_empty_list_of_visible_devices_leaves_none(run_cuda: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run_cuda(
        """
        expect(cuda.cudaGetDeviceCount(byref(c_int())), NO_DEVICE)
        expect(cuda.cudaSetDevice(0), NO_DEVICE)
        expect(driver.cuInit(0), NO_DEVICE)
        """,
        devices=2,
    )


def test_visible_devices_are_numbered_anew(run_cuda: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    run_cuda(
        """
        assert made(cuda.cudaGetDeviceCount, kind=c_int) == 2
        expect(cuda.cudaSetDevice(2), INVALID_DEVICE)
        expect(driver.cuInit(0), OK)
        assert made(driver.cuDeviceGetCount, kind=c_int) == 2
        expect(driver.cuDeviceGet(byref(c_int()), 2), INVALID_DEVICE)
        bus = ctypes.create_string_buffer(16)
        expect(cuda.cudaDeviceGetPCIBusId(bus, 16, 0), OK)
        assert bus.value == b"0000:03:00.0"
        assert made(cuda.cudaDeviceGetByPCIBusId, b"0000:01:00.0", kind=c_int) == 1
        expect(cuda.cudaDeviceGetByPCIBusId(byref(c_int()), b"0000:02:00.0"), INVALID_DEVICE)
        """,
        devices=3,
    )


def test_the_list_of_visible_devices_counts_when_cuda_is_first_used(run_cuda: Run) -> None:
    run_cuda(
        """
        nvml = Library("libnvidia-ml.so.1")
        expect(nvml.nvmlInit_v2(), OK)
        assert made(nvml.nvmlDeviceGetCount_v2, kind=c_int) == 3
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        assert made(cuda.cudaGetDeviceCount, kind=c_int) == 1
        os.environ["CUDA_VISIBLE_DEVICES"] = "1,2"
        assert made(cuda.cudaGetDeviceCount, kind=c_int) == 1
        assert made(nvml.nvmlDeviceGetCount_v2, kind=c_int) == 3
        """,
        devices=3,
    )


def test_the_driver_wants_to_be_initialized_and_to_have_a_context(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(driver.cuDeviceGetCount(byref(c_int())), NOT_INITIALIZED)
        expect(driver.cuInit(1), INVALID_VALUE)
        expect(driver.cuInit(0), OK)
        assert made(driver.cuDeviceGetCount, kind=c_int) == 2
        expect(driver.cuMemAlloc_v2(byref(c_uint64()), 512), INVALID_CONTEXT)
        state = c_uint(), c_int()
        expect(driver.cuDevicePrimaryCtxGetState(1, byref(state[0]), byref(state[1])), OK)
        assert state[1].value == 0
        context = made(driver.cuDevicePrimaryCtxRetain, 1)
        expect(driver.cuDevicePrimaryCtxGetState(1, byref(state[0]), byref(state[1])), OK)
        assert state[1].value == 1
        expect(driver.cuCtxPushCurrent_v2(context), OK)
        assert made(driver.cuCtxGetDevice, kind=c_int) == 1
        assert made(driver.cuMemAlloc_v2, 512, kind=c_uint64)
        expect(driver.cuCtxPopCurrent_v2(byref(out())), OK)
        expect(driver.cuCtxGetDevice(byref(c_int())), INVALID_CONTEXT)
        expect(driver.cuDevicePrimaryCtxRelease_v2(1), OK)
        expect(driver.cuDevicePrimaryCtxRelease_v2(1), INVALID_CONTEXT)
        expect(driver.cuCtxSetCurrent(12345), INVALID_CONTEXT)
        """,
        devices=2,
    )


def test_the_driver_and_the_runtime_have_the_same_device(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(cuda.cudaSetDevice(1), OK)
        assert made(driver.cuCtxGetDevice, kind=c_int) == 1
        expect(driver.cuCtxSetCurrent(made(driver.cuDevicePrimaryCtxRetain, 0)), OK)
        assert made(cuda.cudaGetDevice, kind=c_int) == 0
        expect(cuda.cudaSetDevice(2), INVALID_DEVICE)
        expect(cuda.cudaSetDevice(-1), INVALID_DEVICE)
        """,
        devices=2,
    )


@pytest.mark.parametrize(
    ("release", "function", "size", "offsets"),
    [
        # The sizes and offsets of the structures in CUDA 13's, 12's and 11's driver_types.h.
        (13, "cudaGetDeviceProperties", 1008, {"major": 360, "multiProcessorCount": 384, "l2CacheSize": 596}),
        (12, "cudaGetDeviceProperties_v2", 1032, {"major": 360, "multiProcessorCount": 388, "l2CacheSize": 616}),
        (12, "cudaGetDeviceProperties", 728, {"major": 360, "multiProcessorCount": 388, "l2CacheSize": 616}),
    ],
)
def test_layout_of_the_properties(
    run_cuda: Run, release: int, function: str, size: int, offsets: dict[str, int]
) -> None:
    """What lies behind the structure stays as it was, and members are where programs read them."""
    run_cuda(
        f"""
        buffer = ctypes.create_string_buffer(b"\\xaa" * 2048)
        expect(cuda.{function}(buffer, 0), OK)
        assert buffer.raw[{size}:2048] == b"\\xaa" * {2048 - size} and buffer.raw[{size - 1}] == 0
        at = lambda offset: int.from_bytes(buffer.raw[offset:offset + 4], "little")
        assert buffer.value == b"Emulated A100"
        lines = open(os.environ["EMUGPU_CUDA_SETTINGS"]).read().split()
        assert buffer.raw[256:272].hex() == lines[lines.index("uuid") + 1][4:].replace("-", "")
        assert int.from_bytes(buffer.raw[288:296], "little") == 1 << 30
        assert (at({offsets["major"]}), at({offsets["major"] + 4})) == (8, 0)
        assert at({offsets["multiProcessorCount"]}) == 108
        assert at({offsets["l2CacheSize"]}) == 40 << 20
        expect(cuda.{function}(0, 0), INVALID_VALUE)
        expect(cuda.{function}(buffer, 1), INVALID_DEVICE)
        """,
        release=release,
    )


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [
        # Threads and blocks of a multiprocessor, its registers, its shared memory, that of a block: CUDA C++ Programming Guide,
        # "Technical Specifications per Compute Capability".
        ((3, 7), (2048, 16, 131072, 114688, 49152)),
        ((6, 0), (2048, 32, 65536, 65536, 49152)),
        ((7, 0), (2048, 32, 65536, 98304, 98304)),
        ((7, 5), (1024, 16, 65536, 65536, 65536)),
        ((8, 0), (2048, 32, 65536, 167936, 166912)),
        ((8, 6), (1536, 16, 65536, 102400, 101376)),
        ((8, 9), (1536, 24, 65536, 102400, 101376)),
        ((9, 0), (2048, 32, 65536, 233472, 232448)),
        ((10, 0), (2048, 32, 65536, 233472, 232448)),
    ],
)
def test_attributes_by_compute_capability(
    run_cuda: Run, capability: tuple[int, int], wanted: tuple[int, int, int, int, int]
) -> None:
    run_cuda(
        f"""
        attribute = lambda number: made(cuda.cudaDeviceGetAttribute, number, 0, kind=c_int)
        assert (attribute(75), attribute(76)) == {capability}
        assert tuple(map(attribute, (39, 106, 82, 81, 97))) == {wanted}
        assert tuple(map(attribute, (1, 8, 10, 16))) == (1024, 49152, 32, 108)
        assert attribute(120) == ({capability[0]} >= 9)
        """,
        capability_major=capability[0],
        capability_minor=capability[1],
    )


def test_unknown_attributes_are_invalid(run_cuda: Run) -> None:
    run_cuda(
        """
        for number in (0, -1, 162, 1 << 20):
            expect(cuda.cudaDeviceGetAttribute(byref(c_int()), number, 0), INVALID_VALUE)
        expect(cuda.cudaDeviceGetAttribute(0, 1, 0), INVALID_VALUE)
        expect(cuda.cudaDeviceGetAttribute(byref(c_int()), 1, 5), INVALID_DEVICE)
        """
    )


def test_pci_addresses(run_cuda: Run) -> None:
    run_cuda(
        """
        text = ctypes.create_string_buffer(16)
        expect(cuda.cudaDeviceGetPCIBusId(text, 16, 1), OK)
        assert made(cuda.cudaDeviceGetAttribute, 33, 1, kind=c_int) == int(text.value[5:7], 16)
        assert made(cuda.cudaDeviceGetByPCIBusId, text, kind=c_int) == 1
        expect(cuda.cudaDeviceGetPCIBusId(text, 12, 1), INVALID_VALUE)
        expect(cuda.cudaDeviceGetByPCIBusId(byref(c_int()), ctypes.c_char_p(b"0000:7f:00.0")), INVALID_DEVICE)
        expect(cuda.cudaDeviceGetByPCIBusId(byref(c_int()), ctypes.c_char_p(b"?")), INVALID_VALUE)
        """,
        devices=2,
    )


def test_limits(run_cuda: Run) -> None:
    run_cuda(
        """
        limit = lambda number: made(cuda.cudaDeviceGetLimit, number, kind=c_size_t)
        assert limit(0) == 1024 and limit(2) == 8 * MIB
        expect(cuda.cudaDeviceSetLimit(0, 4096), OK)
        assert limit(0) == 4096
        assert made(driver.cuCtxGetLimit, 0, kind=c_size_t) == 4096
        expect(cuda.cudaDeviceSetLimit(6, 1 << 40), OK)
        assert limit(6) == 30 * MIB, limit(6)
        expect(cuda.cudaDeviceGetLimit(byref(c_size_t()), 99), INVALID_VALUE)
        expect(cuda.cudaDeviceGetLimit(byref(c_size_t()), 10), UNSUPPORTED_LIMIT)
        expect(cuda.cudaDeviceReset(), OK)
        assert limit(0) == 1024
        """
    )


def test_a_reset_frees_the_device_and_destroys_its_objects(run_cuda: Run) -> None:
    run_cuda(
        """
        expect(cuda.cudaSetDevice(0), OK)
        free = lambda: made(cuda.cudaMemGetInfo, byref(c_size_t()), kind=c_size_t)
        before = free()
        address, stream = made(cuda.cudaMalloc, 64 * MIB), made(cuda.cudaStreamCreate)
        assert free() == before - 64 * MIB
        expect(cuda.cudaDeviceReset(), OK)
        assert free() == before
        expect(cuda.cudaFree(address), INVALID_VALUE)
        expect(cuda.cudaStreamQuery(stream), INVALID_HANDLE)
        """
    )


def test_peers_are_enabled_once(run_cuda: Run) -> None:
    run_cuda(
        """
        possible = lambda a, b: made(cuda.cudaDeviceCanAccessPeer, a, b, kind=c_int)
        assert possible(0, 1) == 1 and possible(0, 0) == 0
        expect(cuda.cudaDeviceEnablePeerAccess(0, 0), INVALID_DEVICE)
        expect(cuda.cudaDeviceEnablePeerAccess(1, 1), INVALID_VALUE)
        expect(cuda.cudaDeviceDisablePeerAccess(1), PEER_NOT_ENABLED)
        expect(cuda.cudaDeviceEnablePeerAccess(1, 0), OK)
        expect(cuda.cudaDeviceEnablePeerAccess(1, 0), PEER_ALREADY)
        expect(cuda.cudaDeviceDisablePeerAccess(1), OK)
        expect(cuda.cudaDeviceEnablePeerAccess(5, 0), INVALID_DEVICE)
        """,
        devices=2,
        peer_link_bytes_per_s=3e11,
    )


def test_without_a_link_there_is_no_peer_access(run_cuda: Run) -> None:
    run_cuda(
        """
        assert made(cuda.cudaDeviceCanAccessPeer, 0, 1, kind=c_int) == 0
        expect(cuda.cudaDeviceEnablePeerAccess(1, 0), PEER_UNSUPPORTED)
        """,
        devices=2,
    )


def test_the_last_error_belongs_to_the_thread_and_is_read_once(run_cuda: Run) -> None:
    run_cuda(
        """
        import threading
        expect(cuda.cudaSetDevice(9), INVALID_DEVICE)
        expect(cuda.cudaFree(0), OK)
        expect(cuda.cudaPeekAtLastError(), INVALID_DEVICE)
        others = []
        thread = threading.Thread(target=lambda: others.append(cuda.cudaGetLastError()))
        thread.start(), thread.join()
        assert others == [OK]
        expect(cuda.cudaGetLastError(), INVALID_DEVICE)
        expect(cuda.cudaGetLastError(), OK)
        """
    )


def test_names_and_texts_of_errors(run_cuda: Run) -> None:
    run_cuda(
        """
        assert cuda.text("cudaGetErrorName", 2) == "cudaErrorMemoryAllocation"
        assert cuda.text("cudaGetErrorString", 2) == "out of memory"
        assert cuda.text("cudaGetErrorString", 801) == "operation not supported"
        assert cuda.text("cudaGetErrorString", 4242) == "unrecognized error code"
        name = ctypes.c_char_p()
        expect(driver.cuGetErrorName(500, byref(name)), OK)
        assert name.value == b"CUDA_ERROR_NOT_FOUND"
        expect(driver.cuGetErrorString(98, byref(name)), INVALID_VALUE)  # an error of the runtime alone
        assert name.value is None
        for code in (OK, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_IMAGE, NOT_READY, TOO_LARGE, NOT_SUPPORTED, 906, 999):
            assert cuda.text("cudaGetErrorName", code).startswith("cuda")
            assert "unrecognized" not in cuda.text("cudaGetErrorString", code)
        """
    )
