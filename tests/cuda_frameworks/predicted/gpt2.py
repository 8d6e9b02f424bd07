"""GPT-2 (124 million parameters) with the Trainer of Hugging Face on one GPU."""

import measured
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Timed(TrainerCallback):
    def __init__(self):
        self.steps = measured.Steps()

    def on_step_end(self, arguments, state, control, **others):
        self.steps.ended()

    def on_train_end(self, arguments, state, control, **others):
        self.steps.report()


data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 50257, (64, 512))]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=8, max_steps=measured.steps(), bf16=True, save_strategy="no", report_to=[]
)
Trainer(GPT2LMHeadModel(GPT2Config()), arguments, train_dataset=data, callbacks=[Timed()]).train()
