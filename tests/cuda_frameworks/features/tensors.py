"""Tensors: indexing, sorting, random numbers, memory formats."""

import torch


def boolean_masks() -> None:
    x = torch.randn(1000, device="cuda")
    chosen = x[x > 0]
    assert chosen.dim() == 1 and len(chosen) <= 1000
    assert torch.masked_select(x, x > 0).shape == chosen.shape
    x[x < 0] = 0.0
    assert torch.nonzero(x).shape[1] == 1
    assert bool(torch.isnan(x).any()) is False


def sort_and_unique() -> None:
    x = torch.randint(0, 50, (8, 100), device="cuda")
    values, order = x.sort(dim=1)
    assert values.shape == order.shape == x.shape
    assert x.topk(5, dim=1).values.shape == (8, 5)
    assert x.argmax(dim=1).shape == (8,)
    assert x.float().kthvalue(3, dim=1).values.shape == (8,)
    assert x.unique().dim() == 1
    assert torch.bincount(x.flatten(), minlength=50).shape[0] >= 50
    assert torch.histc(x.float(), bins=10).shape == (10,)


def gather_and_scatter() -> None:
    table = torch.randn(100, 16, device="cuda", requires_grad=True)
    index = torch.arange(0, 100, 10, device="cuda")
    rows = table.index_select(0, index).cumsum(0)
    rows.sum().backward()
    assert table.grad.shape == table.shape
    total = torch.zeros(10, 16, device="cuda").index_add_(0, torch.arange(10, device="cuda"), rows.detach())
    total = total.scatter_add(1, torch.zeros(10, 1, dtype=torch.long, device="cuda"), total)
    assert torch.where(total > 0, total, 0.0).shape == (10, 16)
    assert torch.cat([total, total], 1).roll(1, 0).flip(0).shape == (10, 32)


def random_numbers() -> None:
    torch.cuda.manual_seed_all(7)
    state = torch.cuda.get_rng_state()
    torch.randn(100, device="cuda")
    assert not torch.equal(torch.cuda.get_rng_state(), state), "the generator counts what it has given"
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    generator = torch.Generator(device="cuda").manual_seed(1)
    assert torch.randperm(100, device="cuda", generator=generator).shape == (100,)
    assert torch.bernoulli(torch.full((3, 4), 0.5, device="cuda")).shape == (3, 4)
    assert torch.multinomial(torch.ones(4, 10, device="cuda"), 3).shape == (4, 3)
    assert torch.nn.functional.dropout(torch.ones(10, device="cuda")).shape == (10,)


def channels_last() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    net = net.cuda().to(memory_format=torch.channels_last)
    x = torch.randn(4, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)
    y = net(x)
    y.sum().backward()
    assert y.is_contiguous(memory_format=torch.channels_last)


def element_types() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64):
        x = torch.ones(64, device="cuda").to(dtype)
        assert (x == x).dtype == torch.bool
        assert x.to(torch.complex128).cpu().dtype == torch.complex128
    assert torch.quantize_per_tensor(torch.ones(8).cuda(), 0.1, 0, torch.qint8).int_repr().dtype == torch.int8


def data_of_the_host() -> None:
    values = torch.arange(1_000_000, dtype=torch.float32)
    moved = values.cuda()
    assert torch.equal(moved.cpu(), values)
    assert torch.equal(moved.clone()[250_000:750_000].cpu(), values[250_000:750_000])
    assert torch.equal(moved.view(1000, 1000).t().cpu(), values.view(1000, 1000).t())
    assert torch.from_numpy(moved.cpu().numpy()).sum() == values.sum()
