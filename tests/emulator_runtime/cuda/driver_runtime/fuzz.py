"""Random calls of the driver and the runtime, for test_fuzz.py: a process that ends normally has survived them.

Arguments are such that a real driver answers an error at worst: handles may be anything, but a pointer to what a function
reads or writes is NULL or points to enough memory.
"""

from __future__ import annotations

import random
from typing import Any

from cuda_calls import byref, c_uint64, ctypes, cuda, driver, register

SCRATCH = 1 << 16
INPUT = 2048
"""Bytes: as many as the largest structure that a function reads has, cudaDeviceProp."""
LARGE = (1 << 44, (1 << 63) - 1, (1 << 64) - 1)

# o: output, i: number, s: bytes, r: a few, b: input (numbers), p: array of pointers, f: function, t: text, a digit: itself.
# Handles: A address, C context, E event, G graph, X executable graph, K kernel, M module, P pool, S stream, U object, V memory
# without an address. An output that is kept as a handle: >S.
RUNTIME = """
cudaGetDeviceCount o;cudaSetDevice i;cudaGetDevice o
cudaInitDevice iii;cudaSetDeviceFlags i;cudaGetDeviceFlags o;cudaDeviceSynchronize
cudaDeviceGetAttribute oii;cudaDeviceGetPCIBusId oii
cudaDeviceGetByPCIBusId ot;cudaGetDeviceProperties oi;cudaChooseDevice ob
cudaDeviceGetLimit oi;cudaDeviceSetLimit is
cudaDeviceGetCacheConfig o;cudaDeviceSetCacheConfig i;cudaDeviceGetStreamPriorityRange oo
cudaDeviceCanAccessPeer oii;cudaDeviceGetP2PAttribute oiii;cudaDeviceEnablePeerAccess ii;cudaDeviceDisablePeerAccess i
cudaProfilerStart;cudaProfilerStop;cudaGetLastError
cudaPeekAtLastError;cudaDriverGetVersion o;cudaMalloc >As;cudaMallocManaged >Asi
cudaMallocPitch >Aosr;cudaFree A;cudaHostAlloc >Asi;cudaMallocHost >As;cudaFreeHost A;cudaHostUnregister A
cudaHostGetDevicePointer >AAi;cudaMemGetInfo oo
cudaPointerGetAttributes oA;cudaDeviceGetDefaultMemPool >Pi;cudaDeviceGetMemPool >Pi
cudaDeviceSetMemPool iP;cudaMemPoolCreate >Pb
cudaMemPoolDestroy P;cudaMemPoolGetAttribute Pio;cudaMemPoolSetAttribute Pib
cudaMemPoolTrimTo Ps;cudaMemPoolSetAccess Pb1
cudaMemPoolGetAccess oPb;cudaMallocAsync >AsS;cudaMallocFromPoolAsync >AsPS
cudaFreeAsync AS;cudaDeviceGetGraphMemAttribute iio
cudaDeviceSetGraphMemAttribute iib;cudaMemset Ais;cudaMemsetAsync AisS
cudaMemset2D Asisr;cudaMemset2DAsync AsisrS;cudaGetSymbolAddress >AK
cudaGetSymbolSize oK;cudaMemAdvise Asib;cudaStreamCreate >S
cudaStreamCreateWithFlags >Si;cudaStreamCreateWithPriority >Sii
cudaStreamDestroy S;cudaStreamQuery S;cudaStreamSynchronize S
cudaStreamWaitEvent SEi;cudaStreamGetPriority So;cudaStreamGetFlags So;cudaStreamGetId So;cudaStreamGetDevice So
cudaStreamAddCallback SfAi;cudaLaunchHostFunc SfA;cudaEventCreate >E;cudaEventCreateWithFlags >Ei;cudaEventDestroy E
cudaEventRecord ES;cudaEventRecordWithFlags ESi;cudaEventQuery E;cudaEventSynchronize E;cudaEventElapsedTime oEE
cudaThreadExchangeStreamCaptureMode b;cudaStreamBeginCapture Si
cudaStreamBeginCaptureToGraph SGbb0i;cudaStreamEndCapture S>G
cudaStreamEndCapture S>G;cudaStreamIsCapturing So;cudaStreamGetCaptureInfo Soo>G000;cudaStreamGetCaptureInfo Soo>Gooo
cudaGraphCreate >Gi;cudaGraphDestroy G;cudaGraphClone >GG;cudaGraphGetNodes G0o;cudaGraphInstantiate >XGi
cudaGraphExecGetFlags Xo;cudaGraphLaunch XS;cudaGraphUpload XS;cudaGraphExecDestroy X;cudaUserObjectCreate >UAfi1
cudaUserObjectRetain Ui;cudaUserObjectRelease Ui;cudaGraphRetainUserObject GUii;cudaGraphReleaseUserObject GUi
cudaGetFuncBySymbol >KK;cudaGetKernel >KK
cudaFuncGetAttributes oK;cudaFuncSetAttribute Kii;cudaKernelSetAttributeForDevice Kiii
cudaOccupancyMaxActiveBlocksPerMultiprocessor oKis;cudaFuncGetName oK;cudaOccupancyAvailableDynamicSMemPerBlock oKii
cudaLaunchKernelExC bK0;cudaLibraryLoadData >Mb000000
cudaLibraryUnload M;cudaLibraryGetKernel >KMt;cudaLibraryGetKernelCount oM
cudaLibraryGetGlobal ooMt;cudaGetDriverEntryPointByVersion toiio
"""
DRIVER = """
cuInit i;cuDriverGetVersion o;cuGetErrorName io
cuGetErrorString io;cuDeviceGet oi;cuDeviceGetCount o;cuDeviceGetName oii
cuDeviceGetUuid_v2 oi;cuDeviceTotalMem_v2 oi
cuDeviceGetAttribute oii;cuDeviceGetProperties oi;cuDevicePrimaryCtxRetain >Ci
cuDevicePrimaryCtxRelease_v2 i;cuDevicePrimaryCtxGetState ioo
cuDevicePrimaryCtxSetFlags_v2 ii;cuCtxCreate_v2 >Cii;cuCtxDestroy_v2 C
cuCtxPushCurrent_v2 C;cuCtxPopCurrent_v2 >C;cuCtxSetCurrent C;cuCtxGetCurrent >C;cuCtxGetDevice o;cuCtxGetId Co
cuCtxGetApiVersion Co;cuCtxSynchronize;cuCtxGetLimit oi
cuCtxSetLimit is;cuCtxEnablePeerAccess Ci;cuCtxDisablePeerAccess C
cuMemAlloc_v2 >As;cuMemAllocManaged >Asi;cuMemAllocPitch_v2 >Aosri;cuMemFree_v2 A;cuMemHostAlloc >Asi;cuMemFreeHost A
cuMemHostUnregister A;cuMemHostGetDevicePointer_v2 >AAi
cuMemGetInfo_v2 oo;cuMemGetAddressRange_v2 ooA;cuPointerGetAttribute oiA
cuPointerGetAttributes 1bpA;cuPointerSetAttribute biA;cuMemPoolCreate >Pb;cuMemPoolDestroy P;cuMemPoolGetAttribute Pio
cuMemAllocAsync >AsS;cuMemFreeAsync AS;cuMemAddressReserve >Ass00;cuMemAddressFree As;cuMemCreate >Vsb0;cuMemRelease V
cuMemMap As0V0;cuMemUnmap As;cuMemRetainAllocationHandle >VA
cuMemSetAccess Asb1;cuMemGetAccess obA;cuMemGetAllocationGranularity obi
cuMemcpy2D_v2 b;cuMemsetD8_v2 Ais;cuMemsetD32Async AisS
cuMemsetD2D16_v2 Asisr;cuStreamCreate >Si;cuStreamDestroy_v2 S;cuStreamQuery S
cuStreamSynchronize S;cuStreamWaitEvent SEi
cuStreamGetCtx S>C;cuStreamWriteValue32_v2 SAii;cuStreamWriteValue64_v2 SAii
cuEventCreate >Ei;cuEventDestroy_v2 E;cuEventRecord ES
cuEventQuery E;cuStreamBeginCapture_v2 Si;cuStreamEndCapture S>G
cuStreamGetCaptureInfo_v2 Soo>G00;cuGraphInstantiateWithFlags >XGi
cuGraphLaunch XS;cuGraphExecDestroy X;cuGraphDestroy G
cuModuleLoadData >Mb;cuModuleUnload M;cuModuleGetFunction >KMt;cuModuleGetGlobal_v2 ooMt;cuModuleGetFunctionCount oM
cuModuleEnumerateFunctions oiM;cuLibraryLoadData >Mb000000
cuLibraryGetModule >MM;cuKernelGetFunction >KK;cuKernelGetLibrary >MK
cuKernelGetName oK;cuKernelGetAttribute oiKi;cuKernelSetAttribute iiKi;cuFuncGetAttribute oiK;cuFuncSetAttribute Kii
cuFuncSetCacheConfig Ki;cuLaunchKernel KrrrrrriS00;cuLaunchCooperativeKernel KrrrrrriS0;cuLaunchKernelEx bK00
cuOccupancyMaxActiveBlocksPerMultiprocessor oKis;cuOccupancyMaxPotentialBlockSize ooK0si;cuGetProcAddress_v2 toiio
cuMulticastCreate ob;cuGreenCtxCreate oAii;cuIpcGetMemHandle oA
cuGetExportTable ob;cuLogsRegisterCallback fAo;cuLogsUnregisterCallback A
"""
HANDLES = "ACEGKMPSUVX"


def _table(library: Any, text: str) -> list[tuple[Any, str]]:
    entries = [entry.split() for entry in text.replace("\n", ";").split(";") if entry.strip()]
    return [(getattr(library, entry[0]), entry[1] if len(entry) > 1 else "") for entry in entries]


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"{seed}/calls")
        self.calls = _table(cuda, RUNTIME) + _table(driver, DRIVER)
        self.handles = {kind: [0, 1, 2, 4711, (1 << 64) - 8] for kind in HANDLES}
        self.handles["K"] += register("one", "two", "three")
        self.scratch = [ctypes.create_string_buffer(SCRATCH) for _ in range(8)]
        numbers = ctypes.c_int * (INPUT // 4)
        self.inputs = [numbers(*(self.random.randrange(4) for _ in range(64))) for _ in range(32)]
        self.inputs += [numbers(), numbers(1, 0, 1, 0), numbers(1, 0, 3), numbers(1, 1, 1, 32, 1, 1)]
        for each in self.inputs:  # what some structures have at these places are pointers
            for position in (*range(4, 6), *range(8, 12), *range(20, 22)):
                each[position] = 0
        ptx = ctypes.create_string_buffer(b".version 8.0\n.entry one(){}", INPUT)
        self.inputs += [ptx, ctypes.create_string_buffer(bytes.fromhex("50ed55ba"), INPUT)]
        self.pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, self.scratch[:4]))
        self.texts = [ctypes.c_char_p(text) for text in (b"", b"one", b"cuMemAlloc", b"cuNever", b"0000:01:00.0")]
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
        self.host = [ctypes.addressof(each) for each in self.scratch]

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.random.random() < 0.0005:
                self.random.choice(
                    [cuda.cudaDeviceReset, lambda: driver.cuDevicePrimaryCtxReset_v2(self.random.randrange(3))]
                )()
            elif self.random.random() < 0.1:
                self._copy()
            elif self.random.random() < 0.02:
                self._register()
            else:
                self._call()

    def _call(self) -> None:
        """The handles that a call makes are kept for later ones."""
        function, kinds = self.random.choice(self.calls)
        made: list[tuple[str, Any]] = []
        arguments = []
        position = 0
        while position < len(kinds):
            kind, position = kinds[position], position + 1
            if kind == ">":
                made.append((kinds[position], self.random.choice(self.scratch[4:])))
                arguments.append(made[-1][1])
                position += 1
            else:
                arguments.append(self._argument(kind))
        if function(*arguments) == 0:
            for kind, output in made:
                self._keep(self.handles[kind], int.from_bytes(output.raw[:8], "little"))

    def _keep(self, handles: list[int], value: int) -> None:
        if len(handles) < 40:
            handles.append(value)
        else:
            handles[self.random.randrange(8, 40)] = value

    def _handle(self, kind: str) -> int:
        """Usually one of the kind that the function wants."""
        wanted = kind if self.random.random() < 0.9 else self.random.choice(HANDLES)
        return self.random.choice(self.handles[wanted])

    def _argument(self, kind: str) -> Any:
        if kind in HANDLES:
            return self._handle(kind)
        if kind.isdigit():
            return int(kind)
        match kind:
            case "o":
                return 0 if self.random.random() < 0.05 else self.random.choice(self.scratch[4:])
            case "i":
                return self._number()
            case "r":
                return self.random.choice([0, 1, 1, 1, 2, 8, 32])
            case "s":
                return self._size()
            case "b":
                return self.random.choice([0, *self.inputs])
            case "p":
                return self.random.choice([0, self.pointers])
            case "f":
                return self.random.choice([0, self.function])
            case "t":
                return self.random.choice([0, *self.texts])
        raise ValueError(kind)

    def _number(self) -> int:
        return self.random.choice([0, 0, 0, 1, 1, 2, 3, 4, 8, 16, 32, 64, 1024, -1, -2, 1 << 30, (1 << 31) - 1])

    def _size(self) -> int:
        return self.random.choice([0, 1, 8, 100, 512, 4096, 1 << 16, 1 << 20, 2 << 20, *LARGE])

    def _register(self) -> None:
        """Only what copies and settings may write later, or what isn't there."""
        size = self.random.choice([0, 1, 4096, SCRATCH, *LARGE])
        cuda.cudaHostRegister(self.random.choice([0, 4711, *self.host]), size, self._number())

    def _copy(self) -> None:
        """Of host memory no more than there is; with device memory on one side any size."""
        kind = self.random.choice([-1, 1, 2, 3, 5])
        size = self.random.choice([0, 1, 8, 4096, 1 << 16, 1 << 20, *LARGE])
        device = self._handle("A")
        host = self.random.choice([0, *self.host])
        to, source = (device, host) if kind == 1 else (host, device) if kind == 2 else (device, self._handle("A"))
        if kind in (1, 2) and size > SCRATCH:
            size = SCRATCH
        stream = self._handle("S")
        if self.random.random() < 0.3:
            pitches = self.random.choice([32, 64, 4096]), self.random.choice([0, 64, 4096])
            cuda.cudaMemcpy2DAsync(
                to, pitches[0], source, pitches[1], min(size, 64), self.random.randrange(4), kind, stream
            )
        else:
            cuda.cudaMemcpyAsync(to, source, size, kind, stream)


def fuzz(seed: int, count: int) -> None:
    Fuzzer(seed).run(count)
    value = c_uint64()
    assert cuda.cudaDriverGetVersion(byref(value)) == 0
