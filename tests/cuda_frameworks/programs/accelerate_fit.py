"""Trains a transformer with Accelerate: mixed precision, accumulated gradients, its own launcher for several GPUs."""

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = nn.Sequential(
    nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 2), nn.Linear(256, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
data = torch.utils.data.TensorDataset(torch.randn(96, 32, 256), torch.randint(0, 10, (96, 32)))
loader = torch.utils.data.DataLoader(data, 4, shuffle=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for sequences, labels in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(sequences).flatten(0, 1), labels.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
accelerator.wait_for_everyone()
print("process", accelerator.process_index, "of", accelerator.num_processes, "on", accelerator.device)
accelerator.end_training()
