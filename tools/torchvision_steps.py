"""Training steps of torchvision models, as the GPEmu paper measured them: an unmodified CUDA program, run on emulated GPUs.

    emugpu run --warp --trace trace.json -- python tools/torchvision_steps.py steps MODELS BATCH_SIZES
    emugpu run --warp -- python tools/torchvision_steps.py fits MODEL:BATCH_SIZE ...
    emugpu run --warp -- python tools/torchvision_steps.py limits MODEL:BATCH_SIZE ...
    emugpu trace -- python tools/torchvision_steps.py processes MODELS BATCH_SIZES

`steps` prints [model, batch size, peak of the allocated bytes] for each, null if memory doesn't suffice. In the trace, what the
last step gives to the device lies between two copies of MARK_BYTES; there are two such copies for each model and batch size.
`fits` prints [model, batch size, whether LIMIT_STEPS steps succeed]. `limits` prints [model, batch size, bytes]: the least
memory beside the context with which they do, to within LIMIT_ACCURACY_BYTES. `processes` does STEPS steps of each in a process
of its own, and prints [model, batch size, process number], so that `emugpu trace` writes a file of records for each; these
steps wait for the device between forward and backward pass, which were timed one by one, and the optimizer has a loop over the
parameters, as PyTorch's had then.

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
LIMIT_STEPS = 2
LIMIT_ACCURACY_BYTES = 16 << 20
PARTS_WITHOUT_INITIAL_WEIGHTS = ("googlenet", "inception_v3")


def new(name):
    options = {"init_weights": False} if name in PARTS_WITHOUT_INITIAL_WEIGHTS else {}
    return getattr(torchvision.models, name)(**options)


def train(model, batch_size, steps, before_last=lambda: None, after_forward=lambda: None, foreach=None):
    """Does so many steps, and waits for their end. `foreach`: of the optimizer. Raises torch.cuda.OutOfMemoryError."""
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=foreach)
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


def fits(name, batch_size):
    try:
        train(new(name), batch_size, LIMIT_STEPS)
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    return True


def peak(name, batch_size, mark):
    torch.cuda.reset_peak_memory_stats()
    try:
        train(new(name), batch_size, STEPS, mark)
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


def print_fits(pairs):
    for name, batch_size in pairs:
        print(json.dumps([name, batch_size, fits(name, batch_size)]), flush=True)


def print_processes(models, batch_sizes):
    torch.set_num_threads(1)  # a forked process can't use its parent's threads
    for name in models:
        model = new(name)
        for batch_size in batch_sizes:
            process = os.fork()
            if process == 0:
                train(model, batch_size, STEPS, after_forward=torch.cuda.synchronize, foreach=False)
                sys.exit()
            if os.waitpid(process, 0)[1] == 0:
                print(json.dumps([name, batch_size, process]), flush=True)


def print_limits(pairs):
    total = torch.cuda.get_device_properties(0).total_memory
    for name, batch_size in pairs:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.reset_peak_memory_stats()
        if not fits(name, batch_size):
            print(json.dumps([name, batch_size, None]), flush=True)
            continue
        low, high = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        while high - low > LIMIT_ACCURACY_BYTES:
            middle = (low + high) // 2
            torch.cuda.set_per_process_memory_fraction(middle / total)
            low, high = (low, middle) if fits(name, batch_size) else (middle, high)
        print(json.dumps([name, batch_size, high]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] in ("steps", "processes"):
        print_all = {"steps": print_steps, "processes": print_processes}[sys.argv[1]]
        print_all(sys.argv[2].split(","), [int(size) for size in sys.argv[3].split(",")])
    else:
        chosen = {"fits": print_fits, "limits": print_limits}[sys.argv[1]]
        chosen([(name, int(size)) for name, size in (pair.split(":") for pair in sys.argv[2:])])
