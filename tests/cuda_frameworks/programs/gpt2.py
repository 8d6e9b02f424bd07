"""Trains GPT-2 with the Trainer of Hugging Face: its default optimiser (fused AdamW), bfloat16, two checkpoints; then resumes."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def trainer(steps: int) -> Trainer:
    words = torch.randint(0, 50257, (64, 128))
    data = [{"input_ids": row, "labels": row} for row in words]
    arguments = TrainingArguments(
        "out",
        per_device_train_batch_size=8,
        max_steps=steps,
        bf16=True,
        save_steps=4,
        logging_steps=2,
        dataloader_num_workers=1,
        report_to=[],
    )
    return Trainer(GPT2LMHeadModel(GPT2Config(n_layer=6)), arguments, train_dataset=data)


first = trainer(8)
assert first.args.device.type == "cuda" and first.args.optim == "adamw_torch_fused"
result = first.train()
print("steps", result.global_step, "loss", result.training_loss)
result = trainer(10).train(resume_from_checkpoint="out/checkpoint-8")
print("resumed", result.global_step)
