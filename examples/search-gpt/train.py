"""Trains a GPT of megatron-core, with the options that examples/search-gpt/recipe.yaml searches.

bfloat16, gradients summed in float32, Adam whose state is divided among the data-parallel ranks (Megatron's distributed
optimizer, ZeRO stage 1). The tokens are always the same. Apex has a CUDA extension for the masked softmax, which no package
brings; a function of torch that moves as much memory stands for it.
"""

from __future__ import annotations

import argparse
import os
import sys
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    model = (("layers", 24), ("hidden", 2048), ("heads", 16), ("sequence", 2048), ("vocabulary", 51200))
    job = (("tp", 1), ("pp", 1), ("chunks", 1), ("micro-batch", 1), ("microbatches", 1), ("steps", 3))
    for name, default in (*model, *job):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="none")
    parser.add_argument("--overlap", action="store_true", help="exchange gradients during the backward pass")
    return parser.parse_args()


def masked_softmax() -> None:
    """Modules by the names of Apex's extensions; its kernels read and write the scores once, as torch's softmax does."""
    module = ModuleType("scaled_upper_triang_masked_softmax_cuda")
    module.forward = lambda scores, scale: torch.softmax(scores, -1)
    module.backward = lambda gradient, result, scale: torch._softmax_backward_data(gradient, result, -1, result.dtype)
    module.get_batch_per_block = lambda *sizes: 1
    for name in ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda"):
        sys.modules[name] = module


masked_softmax()
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402


class Batches:
    """The same tokens again and again."""

    def __init__(self, given: argparse.Namespace) -> None:
        shape = (given.micro_batch, given.sequence)
        self.tokens = torch.zeros(shape, dtype=torch.long, device="cuda")
        self.positions = torch.arange(given.sequence, device="cuda").expand(shape)


def forward_step(batches: Batches, model: torch.nn.Module) -> tuple[Tensor, object]:
    output = model(batches.tokens, batches.positions, None, labels=batches.tokens)
    return output, lambda losses: (losses.float().mean(), {})


def configuration(given: argparse.Namespace) -> TransformerConfig:
    recompute = {
        "none": {},
        "selective": {"recompute_granularity": "selective"},
        "full": {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
    }
    return TransformerConfig(
        num_layers=given.layers,
        hidden_size=given.hidden,
        num_attention_heads=given.heads,
        tensor_model_parallel_size=given.tp,
        pipeline_model_parallel_size=given.pp,
        virtual_pipeline_model_parallel_size=given.chunks if given.chunks > 1 else None,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        attention_softmax_in_fp32=False,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        masked_softmax_fusion=True,
        deallocate_pipeline_outputs=True,
        **recompute[given.recompute],
    )


def model_chunk(given: argparse.Namespace, config: TransformerConfig, number: int) -> torch.nn.Module:
    chunk = number if given.chunks > 1 else None
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        given.vocabulary,
        given.sequence,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=chunk),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=chunk),
        share_embeddings_and_output_weights=True,
        vp_stage=chunk,
    )
    settings = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=given.overlap, use_distributed_optimizer=True
    )
    return DistributedDataParallel(config, settings, Float16Module(config, model.cuda()))


def main() -> None:
    given = options()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        given.tp, given.pp, given.chunks if given.chunks > 1 else None, create_gloo_process_groups=False
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = configuration(given)
    chunks = [model_chunk(given, config, number) for number in range(given.chunks)]
    settings = OptimizerConfig(
        optimizer="adam", lr=2e-4, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0, use_distributed_optimizer=True
    )
    optimizer = get_megatron_optimizer(settings, chunks, use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    several = given.chunks > 1
    if given.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if several else chunks[0].no_sync
    step = get_forward_backward_func()
    batches = Batches(given)
    for _ in range(given.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        step(
            forward_step_func=forward_step,
            data_iterator=[batches] * given.chunks if several else batches,
            model=chunks if several else chunks[0],
            num_microbatches=given.microbatches,
            seq_length=given.sequence,
            micro_batch_size=given.micro_batch,
            forward_only=False,
        )
        optimizer.step()
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
