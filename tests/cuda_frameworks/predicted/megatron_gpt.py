"""A GPT of megatron-core with tensor, pipeline and data parallelism, as in Narayanan et al. (SC'21).

Settings are those of the scripts that the authors published for the table (Megatron-LM, examples/sc21): fp16, gradients too, a
constant scale of the loss, each layer recomputed. Gradients are exchanged while the backward pass computes them (`--overlap`,
PyTorch's DistributedDataParallel in those scripts) or after it. That work's Megatron had a CUDA extension for the masked softmax,
which no package brings, and each tensor-parallel rank sent its part of an activation to the next stage. A function of torch that
moves as much memory, and the same exchange, stand for them.
"""

from __future__ import annotations

import argparse
import os
import sys
from math import prod
from types import ModuleType

import torch
import torch.distributed as dist
from torch import Tensor


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("layers", 2),
        ("hidden", 512),
        ("heads", 8),
        ("tp", 1),
        ("pp", 1),
        ("chunks", 1),
        ("micro-batch", 1),
        ("microbatches", 1),
        ("steps", 3),
        ("sequence", 2048),
        ("vocabulary", 51200),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--overlap", action="store_true")
    return parser.parse_args()


def masked_softmax() -> None:
    """Modules by the names of Megatron's extensions; its kernels read and write the scores once, as torch's softmax does."""
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
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator  # noqa: E402
from megatron.core.tensor_parallel import gather_split_1d_tensor, split_tensor_into_1d_equal_chunks  # noqa: E402
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


def share_messages(tp: int) -> None:
    """Each tensor-parallel rank sends its part of an activation to the next stage, where the parts are gathered."""
    communicate = P2PCommunicator._communicate

    def shared(
        self: P2PCommunicator, *, tensor_send_next, tensor_send_prev, recv_prev, recv_next, tensor_shape, **more
    ):  # type: ignore[no-untyped-def]
        parts = [
            None if one is None else split_tensor_into_1d_equal_chunks(one, new_buffer=True)
            for one in (tensor_send_next, tensor_send_prev)
        ]
        before, after, *requests = communicate(
            self,
            tensor_send_next=parts[0],
            tensor_send_prev=parts[1],
            recv_prev=recv_prev,
            recv_next=recv_next,
            tensor_shape=None if tensor_shape is None else (prod(tensor_shape) // tp,),
            **more,
        )
        whole = [
            None if one is None else gather_split_1d_tensor(one).view(tuple(tensor_shape)).requires_grad_()
            for one in (before, after)
        ]
        return (*whole, *requests)

    P2PCommunicator._communicate = shared


def model_chunks(given: argparse.Namespace, config: TransformerConfig) -> list[torch.nn.Module]:
    chunks = []
    for chunk in range(given.chunks):
        stage = chunk if given.chunks > 1 else None
        chunks.append(
            GPTModel(
                config,
                get_gpt_layer_local_spec(),
                given.vocabulary,
                given.sequence,
                pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
                post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
                fp16_lm_cross_entropy=False,
                share_embeddings_and_output_weights=True,
                vp_stage=stage,
            ).cuda()
        )
    return chunks


def main() -> None:
    given = options()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        given.tp, given.pp, given.chunks if given.chunks > 1 else None, create_gloo_process_groups=False
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    if given.tp > 1 and given.pp > 1:
        share_messages(given.tp)
    config = TransformerConfig(
        num_layers=given.layers,
        hidden_size=given.hidden,
        num_attention_heads=given.heads,
        tensor_model_parallel_size=given.tp,
        pipeline_model_parallel_size=given.pp,
        virtual_pipeline_model_parallel_size=given.chunks if given.chunks > 1 else None,
        fp16=True,
        params_dtype=torch.half,
        pipeline_dtype=torch.half,
        attention_softmax_in_fp32=False,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        masked_softmax_fusion=True,
        deallocate_pipeline_outputs=True,
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    data_parallel = DistributedDataParallelConfig(overlap_grad_reduce=given.overlap)
    chunks = [
        DistributedDataParallel(config, data_parallel, Float16Module(config, chunk))
        for chunk in model_chunks(given, config)
    ]
    settings = OptimizerConfig(
        optimizer="adam", lr=1e-4, fp16=True, params_dtype=torch.half, clip_grad=1.0, loss_scale=8192.0
    )
    optimizer = get_megatron_optimizer(settings, chunks, use_gloo_process_groups=False)
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if given.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks] if given.chunks > 1 else chunks[0].no_sync
    step = get_forward_backward_func()
    batches = Batches(given)
    for _ in range(given.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        step(
            forward_step_func=forward_step,
            data_iterator=[batches] * given.chunks if given.chunks > 1 else batches,
            model=chunks if given.chunks > 1 else chunks[0],
            num_microbatches=given.microbatches,
            seq_length=given.sequence,
            micro_batch_size=given.micro_batch,
            forward_only=False,
        )
        optimizer.step()
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
