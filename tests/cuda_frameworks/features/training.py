"""Training: mixed precision, optimisers, autograd, compilers, checkpoints."""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).cuda()


def half_precision() -> None:
    net = _net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    before = net[0].weight._version
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.float16):
            output = net(torch.randn(32, 64, device="cuda"))
        assert output.dtype == torch.float16
        scaler.scale(output.float().pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert net[0].weight._version - before == 4, "no step was skipped because of infinite gradients"


def bfloat16() -> None:
    net = _net()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(torch.randn(32, 64, device="cuda")).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() == loss.item()


def optimisers() -> None:
    optim = torch.optim
    for make in (
        lambda p: optim.AdamW(p, fused=True),
        lambda p: optim.Adam(p, foreach=True, amsgrad=True),
        lambda p: optim.Adam(p, capturable=True),
        lambda p: optim.SGD(p, 0.1, momentum=0.9, fused=True),
        lambda p: optim.Adagrad(p),
        lambda p: optim.RMSprop(p),
        lambda p: optim.LBFGS(p, max_iter=2),
    ):
        net = _net()
        optimizer = make(net.parameters())
        schedule = optim.lr_scheduler.StepLR(optimizer, 2)

        def closure(net: nn.Module = net, optimizer: optim.Optimizer = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = net(torch.randn(8, 64, device="cuda")).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
            schedule.step()
        nn.utils.clip_grad_value_(net.parameters(), 1.0)


def activation_checkpoints() -> None:
    from torch.utils.checkpoint import checkpoint

    net, x = _net(), torch.randn(8, 64, device="cuda", requires_grad=True)
    for use_reentrant in (True, False):
        checkpoint(net, x, use_reentrant=use_reentrant).sum().backward()
    assert x.grad.shape == x.shape


def functions_of_ones_own() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * gradient + 0 * x

    x = torch.randn(8, device="cuda", requires_grad=True)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.shape))
    Double.apply(x).sum().backward()
    assert seen == [(8,)] and x.grad.shape == (8,)
    (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].shape == (8,)


def function_transforms() -> None:
    from torch.func import functional_call, grad, hessian, jacrev, vmap

    net = nn.Linear(8, 1).cuda()
    parameters = dict(net.named_parameters())
    x = torch.randn(16, 8, device="cuda")

    def loss(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return functional_call(net, parameters, (row,)).sum()

    assert vmap(grad(loss), in_dims=(None, 0))(parameters, x)["weight"].shape == (16, 1, 8)
    assert jacrev(torch.sin)(x[0]).shape == (8, 8)
    assert hessian(lambda row: row.pow(3).sum())(x[0]).shape == (8, 8)


def scripts_and_traces() -> None:
    @torch.jit.script
    def activation(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2 + torch.sigmoid(x)

    x = torch.randn(64, 64, device="cuda")
    for _ in range(4):  # the fuser compiles after some runs
        y = activation(x)
    assert y.shape == x.shape
    assert torch.jit.trace(_net(), x)(x).shape == (64, 10)


def compiled_model() -> None:
    net = _net()
    optimizer = torch.optim.AdamW(net.parameters())
    compiled = torch.compile(net)
    for _ in range(3):
        compiled(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert net[0].weight.grad is None


def compiled_with_graphs() -> None:
    net = torch.compile(_net(), mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        with torch.no_grad():
            assert net(torch.ones(32, 64, device="cuda")).shape == (32, 10)


def kernels_in_triton() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from triton_kernel import add  # Triton reads a kernel's source from its file

    x = torch.ones(1000, device="cuda")
    assert add(x, x).shape == (1000,)


def kernels_in_cuda() -> None:
    from torch.cuda.jiterator import _create_jit_fn

    scale = _create_jit_fn("template <typename T> T scale(T x, T factor) { return x * factor; }", factor=2.0)
    x = torch.ones(64, device="cuda")
    assert scale(x).shape == scale(x, factor=3.0).shape == (64,)


def checkpoint_files() -> None:
    net = nn.Linear(64, 64)
    values = {name: value.clone() for name, value in net.state_dict().items()}
    net.cuda()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(net.state_dict(), f"{folder}/model.pt")
        for place in ("cpu", "cuda"):
            loaded = torch.load(f"{folder}/model.pt", map_location=place, weights_only=True)
            assert all(torch.equal(loaded[name].cpu(), values[name]) for name in values)
    net.load_state_dict(loaded)
