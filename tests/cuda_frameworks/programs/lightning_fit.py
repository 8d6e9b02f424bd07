"""Trains and tests a small network with Lightning, in mixed precision, with a checkpoint."""

import lightning
import torch
from torch import nn


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        self.log("checked", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


data = torch.utils.data.TensorDataset(torch.randn(256, 3, 16, 16), torch.randint(0, 10, (256,)))
loader = torch.utils.data.DataLoader(data, 32, num_workers=1, persistent_workers=True)
trainer = lightning.Trainer(
    accelerator="gpu",
    devices=1,
    max_epochs=2,
    precision="16-mixed",
    gradient_clip_val=1.0,
    logger=False,
    default_root_dir="out",
)
model = Classifier()
trainer.fit(model, loader, loader)
trainer.validate(model, loader, ckpt_path="best")
print("steps", trainer.global_step, "on", trainer.strategy.root_device)
