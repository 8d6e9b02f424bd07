"""Training steps of torchvision models, as the GPEmu paper measured them: an unmodified CUDA program, run on emulated GPUs.

    emugpu run --warp --trace trace.json -- python tools/torchvision_steps.py steps MODELS BATCH_SIZES
    emugpu run --warp -- python tools/torchvision_steps.py ends MODEL:FIRST:LAST ...
    emugpu run --warp -- python tools/torchvision_steps.py limits MODEL:BATCH_SIZE ...
    emugpu trace -- python tools/torchvision_steps.py processes MODELS BATCH_SIZES

`steps` prints [model, batch size, peak of the allocated bytes] for each, null if memory doesn't suffice. In the trace, what the
last step gives to the device lies between two copies of MARK_BYTES; there are two such copies for each model and batch size.
`ends` prints [model, batch size]: the last one from FIRST to LAST before memory doesn't suffice, 0 if there is none. `limits`
prints [model, batch size, bytes]: the least memory beside the context with which it does, to within LIMIT_ACCURACY_BYTES. Both
train as often and in the order in which the times were measured, since how much of the memory an allocator can use depends on
what it has done before. `processes` does STEPS steps of each in a process of its own, and prints [model, batch size, process
number], so that `emugpu trace` writes a file of records for each; these steps wait for the device between forward and backward
pass, which were timed one by one, and the optimizer has a loop over the parameters, as PyTorch's had then.

FP32, eager, input 3x224x224, SGD with momentum; gradients are set to zero, not to None, as PyTorch did then. With the variable
CUBLAS_WORKSPACE_CONFIG=:0:0, the peak is without the 16 MiB that later releases of PyTorch allocate for cuBLAS.

It needs torch and torchvision, and nothing of this project.
"""

import gc
import json
import os
import sys

import torch
import torchvision

MARK_BYTES = 12345
STEPS = 3
MEASURED_STEPS = 10
LIMIT_ACCURACY_BYTES = 4 << 20
PARTS_WITHOUT_INITIAL_WEIGHTS = ("googlenet", "inception_v3")


def new(name):
    options = {"init_weights": False} if name in PARTS_WITHOUT_INITIAL_WEIGHTS else {}
    return getattr(torchvision.models, name)(**options)


def new_optimizer(model, *, foreach=False):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=foreach)


def train(model, optimizer, batch_size, steps, before_last=lambda: None, after_forward=lambda: None):
    """Does so many steps, and waits for their end. Raises torch.cuda.OutOfMemoryError."""
    model.cuda()
    criterion = torch.nn.CrossEntropyLoss().cuda()
    images = torch.randn(batch_size, 3, 224, 224).cuda()
    labels = torch.randint(0, 1000, (batch_size,)).cuda()
    for step in range(steps):
        torch.cuda.synchronize()
        if step == steps - 1:
            before_last()
        output = model(images)
        after_forward()
        loss = criterion(output if torch.is_tensor(output) else output.logits, labels)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


def peak(name, batch_size, mark):
    torch.cuda.reset_peak_memory_stats()
    try:
        model = new(name)
        train(model, new_optimizer(model, foreach=None), batch_size, STEPS, mark)
    except torch.cuda.OutOfMemoryError:
        mark()
        return None
    return torch.cuda.max_memory_allocated()


def print_steps(models, batch_sizes):
    source = torch.zeros(MARK_BYTES, dtype=torch.uint8)
    for name in models:
        for batch_size in batch_sizes:
            bytes_used = peak(name, batch_size, source.cuda)
            source.cuda()
            print(json.dumps([name, batch_size, bytes_used]), flush=True)
            gc.collect()
            torch.cuda.empty_cache()


def print_processes(models, batch_sizes):
    torch.set_num_threads(1)  # a forked process can't use its parent's threads
    for name in models:
        model = new(name)
        for batch_size in batch_sizes:
            process = os.fork()
            if process == 0:
                train(model, new_optimizer(model), batch_size, STEPS, after_forward=torch.cuda.synchronize)
                sys.exit()
            if os.waitpid(process, 0)[1] == 0:
                print(json.dumps([name, batch_size, process]), flush=True)


def in_process(function, *arguments):
    """The number that the function returns, in a process that this one forks."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(writing, str(function(*arguments)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        number = int(answer.read())
    os.waitpid(process, 0)
    return number


def last_that_fits(model, batch_sizes, limit_bytes=None):
    """As GPEmu's gpu_compute_time_profiler.py: one batch size after the other, from 1, until memory doesn't suffice. What lies
    between 1 and the first of `batch_sizes` is left out: only batch size 1 leaves something to the others, which is where the
    gradients and the optimizer's state lie."""
    if limit_bytes is not None:
        torch.cuda.set_per_process_memory_fraction(limit_bytes / total_bytes())
    optimizer = new_optimizer(model)
    last = 0
    try:
        for batch_size in (1, *batch_sizes):
            train(model, optimizer, batch_size, MEASURED_STEPS)
            last = batch_size
            torch.cuda.empty_cache()
    except torch.cuda.OutOfMemoryError:
        pass
    return last if last in batch_sizes else 0


def total_bytes():
    return torch.cuda.get_device_properties(0).total_memory


def print_ends(ranges):
    torch.set_num_threads(1)  # a forked process can't use its parent's threads
    for name, first, last in (one.split(":") for one in ranges):
        found = in_process(last_that_fits, new(name), range(int(first), int(last) + 1))
        print(json.dumps([name, found]), flush=True)


def print_limits(pairs):
    torch.set_num_threads(1)
    for name, batch_size in (one.split(":") for one in pairs):
        model, batch_sizes = new(name), [int(batch_size)]
        low, high = 0, in_process(total_bytes)
        while high - low > LIMIT_ACCURACY_BYTES:
            middle = (low + high) // 2
            low, high = (low, middle) if in_process(last_that_fits, model, batch_sizes, middle) else (middle, high)
        print(json.dumps([name, int(batch_size), high]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] in ("steps", "processes"):
        print_all = {"steps": print_steps, "processes": print_processes}[sys.argv[1]]
        print_all(sys.argv[2].split(","), [int(size) for size in sys.argv[3].split(",")])
    else:
        {"ends": print_ends, "limits": print_limits}[sys.argv[1]](sys.argv[2:])
