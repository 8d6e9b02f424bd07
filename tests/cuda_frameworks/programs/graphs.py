"""Trains by replaying a CUDA graph of a whole step, with data that changes."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), capturable=True)
images, labels = torch.randn(64, 512, device="cuda"), torch.randint(0, 10, (64,), device="cuda")


def step() -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(20):
    images.copy_(torch.randn(64, 512), non_blocking=True)
    graph.replay()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
print("replayed 20, loss", loss.item())
