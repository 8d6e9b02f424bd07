"""Random calls of the driver and the runtime, for test_fuzz.py: a process that ends normally has survived them.

Arguments are such that a real driver answers an error at worst: handles may be anything, but a pointer to what a function reads or
writes is NULL or points to enough memory.
"""

from __future__ import annotations

import random
from typing import Any

from cuda_calls import byref, c_uint64, ctypes, cuda, driver, register

SCRATCH = 1 << 16
LARGE = (1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)

# o: output, i: number, s: bytes, h: handle or address, b: input (numbers), p: array of pointers, f: function, t: text
RUNTIME = """
cudaGetDeviceCount o;cudaSetDevice i;cudaGetDevice o;cudaInitDevice iii;cudaSetDeviceFlags i;cudaGetDeviceFlags o;cudaDeviceSynchronize
cudaDeviceReset;cudaDeviceGetAttribute oii;cudaDeviceGetPCIBusId oii;cudaDeviceGetByPCIBusId ot;cudaGetDeviceProperties oi
cudaChooseDevice ob;cudaDeviceGetLimit oi;cudaDeviceSetLimit is;cudaDeviceGetCacheConfig o;cudaDeviceSetCacheConfig i
cudaDeviceGetStreamPriorityRange oo;cudaDeviceCanAccessPeer oii;cudaDeviceGetP2PAttribute oiii;cudaDeviceEnablePeerAccess ii
cudaDeviceDisablePeerAccess i;cudaProfilerStart;cudaProfilerStop;cudaGetLastError;cudaPeekAtLastError;cudaDriverGetVersion o
cudaMalloc os;cudaMallocManaged osi;cudaMallocPitch ooss;cudaFree h;cudaHostAlloc osi;cudaMallocHost os;cudaFreeHost h
cudaHostUnregister h;cudaHostGetDevicePointer ohi;cudaMemGetInfo oo;cudaPointerGetAttributes oh;cudaDeviceGetDefaultMemPool oi
cudaDeviceGetMemPool oi;cudaDeviceSetMemPool ih;cudaMemPoolCreate ob;cudaMemPoolDestroy h;cudaMemPoolGetAttribute hio
cudaMemPoolSetAttribute hib;cudaMemPoolTrimTo hs;cudaMemPoolSetAccess hb1;cudaMemPoolGetAccess ohb;cudaMallocAsync osh
cudaMallocFromPoolAsync oshh;cudaFreeAsync hh;cudaDeviceGetGraphMemAttribute iio;cudaDeviceSetGraphMemAttribute iib
cudaMemset his;cudaMemsetAsync hish;cudaMemset2D hsiss;cudaMemset2DAsync hsissh;cudaGetSymbolAddress oh;cudaGetSymbolSize oh
cudaMemAdvise hsib;cudaStreamCreate o;cudaStreamCreateWithFlags oi;cudaStreamCreateWithPriority oii;cudaStreamDestroy h
cudaStreamQuery h;cudaStreamSynchronize h;cudaStreamWaitEvent hhi;cudaStreamGetPriority ho;cudaStreamGetFlags ho;cudaStreamGetId ho
cudaStreamGetDevice ho;cudaStreamAddCallback hfhi;cudaLaunchHostFunc hfh;cudaEventCreate o;cudaEventCreateWithFlags oi
cudaEventDestroy h;cudaEventRecord hh;cudaEventRecordWithFlags hhi;cudaEventQuery h;cudaEventSynchronize h;cudaEventElapsedTime ohh
cudaThreadExchangeStreamCaptureMode b;cudaStreamBeginCapture hi;cudaStreamBeginCaptureToGraph hhbb0i;cudaStreamEndCapture ho
cudaStreamIsCapturing ho;cudaStreamGetCaptureInfo hooo000;cudaGraphCreate oi;cudaGraphDestroy h;cudaGraphClone oh;cudaGraphGetNodes hoo
cudaGraphInstantiate ohi;cudaGraphExecGetFlags ho;cudaGraphLaunch hh;cudaGraphUpload hh;cudaGraphExecDestroy h
cudaUserObjectCreate ohfii;cudaUserObjectRetain hi;cudaUserObjectRelease hi;cudaGraphRetainUserObject hhii
cudaGraphReleaseUserObject hhi;cudaGetFuncBySymbol oh;cudaGetKernel oh;cudaFuncGetAttributes oh;cudaFuncSetAttribute hii
cudaKernelSetAttributeForDevice hiii;cudaOccupancyMaxActiveBlocksPerMultiprocessor ohis;cudaFuncGetName oh
cudaOccupancyAvailableDynamicSMemPerBlock ohii;cudaLaunchKernelExC bh0;cudaLibraryLoadData ob000000;cudaLibraryUnload h
cudaLibraryGetKernel oht;cudaLibraryGetKernelCount oh;cudaLibraryGetGlobal ooht;cudaGetDriverEntryPointByVersion toiio
"""
DRIVER = """
cuInit i;cuDriverGetVersion o;cuGetErrorName io;cuGetErrorString io;cuDeviceGet oi;cuDeviceGetCount o;cuDeviceGetName oii
cuDeviceGetUuid_v2 oi;cuDeviceTotalMem_v2 oi;cuDeviceGetAttribute oii;cuDeviceGetProperties oi;cuDevicePrimaryCtxRetain oi
cuDevicePrimaryCtxRelease_v2 i;cuDevicePrimaryCtxReset_v2 i;cuDevicePrimaryCtxGetState ioo;cuDevicePrimaryCtxSetFlags_v2 ii
cuCtxCreate_v2 oii;cuCtxDestroy_v2 h;cuCtxPushCurrent_v2 h;cuCtxPopCurrent_v2 o;cuCtxSetCurrent h;cuCtxGetCurrent o
cuCtxGetDevice o;cuCtxGetId ho;cuCtxGetApiVersion ho;cuCtxSynchronize;cuCtxGetLimit oi;cuCtxSetLimit is;cuCtxEnablePeerAccess hi
cuCtxDisablePeerAccess h;cuMemAlloc_v2 os;cuMemAllocManaged osi;cuMemAllocPitch_v2 oossi;cuMemFree_v2 h;cuMemHostAlloc osi
cuMemFreeHost h;cuMemHostUnregister h;cuMemHostGetDevicePointer_v2 ohi;cuMemGetInfo_v2 oo;cuMemGetAddressRange_v2 ooh
cuPointerGetAttribute oih;cuPointerGetAttributes 1bph;cuPointerSetAttribute bih;cuMemPoolCreate ob;cuMemPoolDestroy h
cuMemPoolGetAttribute hio;cuMemAllocAsync osh;cuMemFreeAsync hh;cuMemAddressReserve osshi;cuMemAddressFree hs;cuMemCreate osbi
cuMemRelease h;cuMemMap hsshi;cuMemUnmap hs;cuMemRetainAllocationHandle oh;cuMemSetAccess hsb1;cuMemGetAccess obh
cuMemGetAllocationGranularity obi;cuMemcpy2D_v2 b;cuMemsetD8_v2 his;cuMemsetD32Async hish;cuMemsetD2D16_v2 hsiss
cuStreamCreate oi;cuStreamDestroy_v2 h;cuStreamQuery h;cuStreamSynchronize h;cuStreamWaitEvent hhi;cuStreamGetCtx ho
cuStreamWriteValue32_v2 hhii;cuStreamWriteValue64_v2 hhii;cuEventCreate oi;cuEventDestroy_v2 h;cuEventRecord hh;cuEventQuery h
cuStreamBeginCapture_v2 hi;cuStreamEndCapture ho;cuStreamGetCaptureInfo_v2 hooo00;cuGraphInstantiateWithFlags ohi;cuGraphLaunch hh
cuGraphExecDestroy h;cuGraphDestroy h;cuModuleLoadData ob;cuModuleUnload h;cuModuleGetFunction oht;cuModuleGetGlobal_v2 ooht
cuModuleGetFunctionCount oh;cuModuleEnumerateFunctions oih;cuLibraryLoadData ob000000;cuLibraryGetModule oh;cuKernelGetFunction oh
cuKernelGetLibrary oh;cuKernelGetName oh;cuKernelGetAttribute oihi;cuKernelSetAttribute iihi;cuFuncGetAttribute oih
cuFuncSetAttribute hii;cuFuncSetCacheConfig hi;cuLaunchKernel hiiiiiiih00;cuLaunchCooperativeKernel hiiiiiiih0;cuLaunchKernelEx bh00
cuOccupancyMaxActiveBlocksPerMultiprocessor ohis;cuOccupancyMaxPotentialBlockSize ooh0si;cuGetProcAddress_v2 toiio
cuMulticastCreate ob;cuGreenCtxCreate ohii;cuIpcGetMemHandle oh;cuGetExportTable ob;cuLogsRegisterCallback fho;cuLogsUnregisterCallback h
"""


def _table(library: Any, text: str) -> list[tuple[Any, str]]:
    entries = [entry.split() for entry in text.replace("\n", ";").split(";") if entry.strip()]
    return [(getattr(library, entry[0]), entry[1] if len(entry) > 1 else "") for entry in entries]


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"{seed}/calls")
        self.calls = _table(cuda, RUNTIME) + _table(driver, DRIVER)
        self.handles = [0, 1, 2, 4711, (1 << 64) - 8, *register("one", "two", "three")]
        self.scratch = [ctypes.create_string_buffer(SCRATCH) for _ in range(8)]
        self.inputs = [(ctypes.c_int * 64)(*(self.random.randrange(4) for _ in range(64))) for _ in range(32)]
        self.inputs += [(ctypes.c_int * 64)()]
        for each in self.inputs:  # what some structures have at these places are pointers
            for position in (*range(4, 6), *range(8, 12), *range(20, 22)):
                each[position] = 0
        ptx = ctypes.create_string_buffer(b".version 8.0\n.entry one(){}")
        self.inputs += [ptx, ctypes.create_string_buffer(bytes.fromhex("50ed55ba") + bytes(60))]
        self.pointers = (ctypes.c_void_p * 4)(*map(ctypes.addressof, self.scratch[:4]))
        self.texts = [ctypes.c_char_p(text) for text in (b"", b"one", b"cuMemAlloc", b"cuNever", b"0000:01:00.0")]
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
        self.host = [ctypes.addressof(each) for each in self.scratch]

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.random.random() < 0.1:
                self._copy()
            elif self.random.random() < 0.02:
                cuda.cudaHostRegister(self._address(), self._size(), self._number())
            else:
                self._call()

    def _call(self) -> None:
        function, kinds = self.random.choice(self.calls)
        outputs: list[Any] = []
        status = function(*(self._argument(kind, outputs) for kind in kinds))
        if status == 0:
            for output in outputs:
                self._keep(int.from_bytes(output.raw[:8], "little"))

    def _keep(self, value: int) -> None:
        if len(self.handles) < 200:
            self.handles.append(value)
        else:
            self.handles[self.random.randrange(8, 200)] = value

    def _argument(self, kind: str, outputs: list[Any]) -> Any:
        match kind:
            case "o":
                if self.random.random() < 0.05:
                    return 0
                outputs.append(self.random.choice(self.scratch[4:]))
                return outputs[-1]
            case "i":
                return self._number()
            case "s":
                return self._size()
            case "h":
                return self.random.choice(self.handles)
            case "b":
                return self.random.choice([0, *self.inputs])
            case "p":
                return self.random.choice([0, self.pointers])
            case "f":
                return self.random.choice([0, self.function])
            case "t":
                return self.random.choice([0, *self.texts])
            case number:
                return int(number)

    def _number(self) -> int:
        return self.random.choice([0, 0, 0, 1, 1, 2, 3, 4, 8, 16, 32, 64, 1024, -1, -2, 1 << 30, (1 << 31) - 1])

    def _size(self) -> int:
        return self.random.choice([0, 1, 8, 100, 512, 4096, 1 << 16, 1 << 20, 2 << 20, *LARGE])

    def _address(self) -> int:
        return self.random.choice([0, *self.host, *self.handles])

    def _copy(self) -> None:
        """Of host memory no more than there is; with device memory on one side any size."""
        kind = self.random.choice([-1, 1, 2, 3, 5])
        size = self.random.choice([0, 1, 8, 4096, 1 << 16, 1 << 20, *LARGE])
        device = self.random.choice(self.handles)
        host = self.random.choice([0, *self.host])
        to, source = (device, host) if kind == 1 else (host, device) if kind == 2 else (device, self.random.choice(self.handles))
        if kind in (1, 2) and size > SCRATCH:
            size = SCRATCH
        stream = self.random.choice(self.handles)
        if self.random.random() < 0.3:
            cuda.cudaMemcpy2DAsync(to, self._size(), source, self._size(), min(size, 64), self.random.randrange(4), kind, stream)
        else:
            cuda.cudaMemcpyAsync(to, source, size, kind, stream)


def fuzz(seed: int, count: int) -> None:
    Fuzzer(seed).run(count)
    value = c_uint64()
    assert cuda.cudaDriverGetVersion(byref(value)) == 0
