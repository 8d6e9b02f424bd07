"""Trains a compiled transformer: Inductor generates Triton kernels, which ptxas compiles."""

import torch
from torch import nn

net = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0), 1).cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
compiled = torch.compile(net)
for _ in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(torch.randn(8, 32, 128, device="cuda")).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
from torch._dynamo.utils import counters  # noqa: E402

print("graphs", counters["stats"]["unique_graphs"], "breaks", sum(counters["graph_break"].values()))
