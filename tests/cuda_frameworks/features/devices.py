"""Devices: streams, events, graphs, memory, several GPUs, tools."""

import os
import time

import torch
from torch import nn


def device_properties() -> None:
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    properties = torch.cuda.get_device_properties(0)
    assert properties.total_memory > 30 << 30 and properties.multi_processor_count > 50
    assert "A100" in torch.cuda.get_device_name(1)
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.cuda.is_bf16_supported()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.cudart().cudaProfilerStop()


def streams() -> None:
    one, other = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    with torch.cuda.stream(one):
        x = torch.ones(10, device="cuda")
    other.wait_stream(one)
    with torch.cuda.stream(other):
        y = x + 1
        x.record_stream(other)
    torch.cuda.current_stream().wait_stream(other)
    torch.cuda.synchronize()
    assert one.query() and other.query() and y.shape == (10,)


def events() -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    start.record()
    for _ in range(5):
        x = x @ x
    end.record()
    end.synchronize()
    milliseconds = start.elapsed_time(end)
    assert milliseconds > 5 * 2 * 4096**3 / 200e12 * 1e3, f"no A100 is so fast: {milliseconds} ms"
    began = time.perf_counter()
    torch.cuda._sleep(100_000_000)
    torch.cuda.synchronize()
    assert time.perf_counter() >= began


def cuda_graphs() -> None:
    net, x = nn.Linear(64, 64).cuda(), torch.randn(8, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        net(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = net(x)
        y.sum().backward()
    for _ in range(3):
        x.copy_(torch.ones(8, 64))
        graph.replay()
    torch.cuda.synchronize()
    assert y.shape == (8, 64)


def graphed_layers() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    x = torch.randn(8, 64, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(net, (x,))
    graphed(x).sum().backward()
    assert x.grad.shape == x.shape


def memory_statistics() -> None:
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == 100 << 20
    del x
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 100 << 20
    assert torch.cuda.memory_reserved() >= 100 << 20
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    assert torch.cuda.mem_get_info()[0] >= free + (100 << 20)
    torch.cuda.memory._record_memory_history()
    torch.ones(10, device="cuda")
    assert torch.cuda.memory._snapshot()["segments"]
    assert "Active memory" in torch.cuda.memory_summary()


def out_of_memory() -> None:
    kept = torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "Tried to allocate 30.00 GiB" in str(error), error
    else:
        raise AssertionError("an A100 has 40 GB")
    del kept
    assert torch.empty(30 << 30, dtype=torch.uint8, device="cuda").is_cuda


def memory_fraction() -> None:
    torch.cuda.set_per_process_memory_fraction(0.1)
    try:
        torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return
    raise AssertionError("a tenth of an A100's 40 GB is less than 10 GB")


def _allocate_and_free() -> None:
    kept = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (1, 30, 200, 5)]
    del kept[1::2]
    kept.append(torch.empty(400 << 20, dtype=torch.uint8, device="cuda"))
    assert torch.cuda.memory_allocated() == (1 + 200 + 400) << 20
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    values = torch.arange(1000)
    assert torch.equal(values.cuda().cpu(), values)


def allocator_of_cuda() -> None:
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    _allocate_and_free()


def expandable_segments() -> None:
    _allocate_and_free()
    assert any(segment["is_expandable"] for segment in torch.cuda.memory._snapshot()["segments"])


def pinned_memory() -> None:
    values = torch.randn(1000, 1000).pin_memory()
    assert values.is_pinned()
    moved = values.to("cuda", non_blocking=True)
    back = torch.empty(1000, 1000, pin_memory=True)
    back.copy_(moved, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, values)


def pinned_data_loader() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(640).view(64, 10), torch.zeros(64))
    loader = torch.utils.data.DataLoader(data, 8, num_workers=2, pin_memory=True)
    batches = [rows.to("cuda", non_blocking=True).cpu() for rows, _ in loader]
    assert torch.equal(torch.cat(batches), torch.arange(640).view(64, 10))


def copies_between_devices() -> None:
    from torch.cuda import comm

    assert torch.cuda.can_device_access_peer(0, 1)
    values = torch.arange(100_000)
    first = values.to("cuda:0")
    second = first.to("cuda:1", non_blocking=True)
    assert second.device.index == 1 and torch.equal(second.cpu(), values)
    with torch.cuda.device(1):
        assert (second + 1).device.index == 1
    assert comm.broadcast(first, [0, 1])[1].device.index == 1
    assert comm.scatter(first, [0, 1])[1].device.index == 1


def data_parallel() -> None:
    net = nn.DataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        net(torch.randn(16, 64, device="cuda")).sum().backward()
        optimizer.step()
    assert net.module[0].weight.grad.shape == (64, 64)


def management_library() -> None:
    import pynvml

    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used >= kept.nbytes
    assert str(torch.cuda.get_device_properties(0).uuid) in str(pynvml.nvmlDeviceGetUUID(handle))
    assert 0 <= torch.cuda.utilization() <= 100
    assert "process" in torch.cuda.list_gpu_processes()


def profiler() -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with (
        profile(activities=activities, profile_memory=True) as recorded,
        record_function("mine"),
        torch.cuda.nvtx.range("range"),
    ):
        (torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")).sum().item()
    names = {event.key for event in recorded.key_averages()}
    assert {"mine", "aten::mm", "cudaLaunchKernel"} & names >= {"mine", "aten::mm"}, names


def memory_of_another_process() -> None:
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    queue.put(torch.ones(10, device="cuda"))


def files_to_gpus() -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        torch.cuda.gds.GdsFile(file.name, os.O_CREAT | os.O_RDWR).save_storage(
            torch.ones(1024, device="cuda").untyped_storage()
        )


def temperature() -> None:
    print(torch.cuda.temperature())
