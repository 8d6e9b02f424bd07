"""Saves a model whose parameters the host gave, with its optimiser, after moving it to a GPU. Argument `load`: loads the file."""

import sys

import torch


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(100, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 10))


if sys.argv[1:] == ["load"]:
    assert not torch.cuda.is_available()
    content = torch.load("model.pt", map_location="cpu", weights_only=True)
    loaded = model()
    loaded.load_state_dict(content["model"])
    expected = model().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    optimizer = torch.optim.AdamW(loaded.parameters())
    optimizer.load_state_dict(content["optimizer"])
    loaded(torch.randn(4, 100)).sum().backward()
    optimizer.step()
    print("loaded", len(content["model"]), "tensors")
else:
    net = model().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "model.pt")
    for _ in range(2):
        net(torch.randn(8, 100, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "trained.pt")
    print("saved")
