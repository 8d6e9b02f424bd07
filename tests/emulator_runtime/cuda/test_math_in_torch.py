"""PyTorch gives the emulated libraries the operations that PyTorch itself counts."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.support.torch_releases import RELEASES, installed

PROGRAM = """
import warnings; warnings.simplefilter("ignore")
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
def random(*sizes, dtype=None):
    return torch.randn(*sizes, device="cuda", dtype=dtype, requires_grad=True)
"""


pytestmark = pytest.mark.frameworks


@pytest.fixture(params=RELEASES)
def torch(request: pytest.FixtureRequest) -> Path:
    return installed(request.param).python


def work_of(torch: Path, tmp_path: Path, code: str, gpu_type: str = "A100") -> tuple[str, Counter[str], set[int]]:
    """What the program prints, the operations of the libraries' work by name, and their precisions."""
    trace = tmp_path / "trace.json"
    options = ["--gpu-type", gpu_type, "--warp", "--trace", str(trace)]
    let_go = "\nimport time; time.sleep(0.3)"  # see LET_GO of tests/cuda_frameworks/test_features.py
    program = PROGRAM + textwrap.dedent(code) + let_go
    command = [sys.executable, "-m", "emugpu", "run", *options, "--", str(torch), "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    flops: Counter[str] = Counter()
    precisions = set()
    for event in json.loads(trace.read_text()):
        arguments = event.get("args", {})
        if arguments.get("flops", 0) > 0:
            flops[event["name"]] += arguments["flops"]
            precisions.add(arguments["precision"])
    return done.stdout.strip(), flops, precisions


def test_convolutions(torch: Path, tmp_path: Path) -> None:
    counted, flops, precisions = work_of(
        torch,
        tmp_path,
        """
        net = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, dilation=2)).cuda()
        with FlopCounterMode(display=False) as counter:
            net(random(4, 3, 64, 64)).sum().backward()
        print(counter.get_total_flops())
        """,
    )
    assert sum(flops[name] for name in flops if name.startswith("convolution")) == int(counted)
    assert precisions == {2}, "TF32, PyTorch's default for convolutions"


def test_convolutions_without_tf32(torch: Path, tmp_path: Path) -> None:
    _, flops, precisions = work_of(
        torch,
        tmp_path,
        """
        torch.backends.cudnn.allow_tf32 = False
        for benchmark in (False, True):
            torch.backends.cudnn.benchmark = benchmark
            nn.Conv2d(8, 16, 3).cuda()(random(4, 8, 16, 16)).sum().backward()
        """,
    )
    assert flops["convolution_backward_filter"] > 0
    assert precisions == {1}


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_cudnn(torch: Path, tmp_path: Path, causal: bool) -> None:
    counted, flops, precisions = work_of(
        torch,
        tmp_path,
        f"""
        q, k, v = (random(2, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3))
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, is_causal={causal}).sum().backward()
        print(counter.get_total_flops())
        """,
    )
    assert set(flops) == {"attention_forward", "attention_backward"}
    assert flops.total() == int(counted) / (2 if causal else 1), "PyTorch counts what a mask hides, too"
    assert precisions == {4}


def test_recurrent_networks(torch: Path, tmp_path: Path) -> None:
    printed, flops, _ = work_of(
        torch,
        tmp_path,
        """
        net = nn.LSTM(10, 20, 2, bidirectional=True).cuda()
        output, _ = net(random(7, 3, 10))
        output.sum().backward()
        loaded = nn.LSTM(10, 20, 2, bidirectional=True)
        loaded.load_state_dict({name: value.cpu() for name, value in net.state_dict().items()})
        print(sum(value.numel() for name, value in net.named_parameters() if "weight" in name))
        nn.GRU(10, 20, batch_first=True).cuda()(random(3, 7, 10))[0].sum().backward()
        """,
    )
    weights = int(printed) + 3 * 20 * (10 + 20)
    for name in ("rnn_forward", "rnn_backward_data", "rnn_backward_weights"):
        assert flops[name] == pytest.approx(2 * 21 * weights, rel=1e-3)


def test_fp8_products(torch: Path, tmp_path: Path) -> None:
    _, flops, precisions = work_of(
        torch,
        tmp_path,
        """
        a, b = (torch.randn(64, 128, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        one = torch.ones((), device="cuda")
        torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)
        """,
        gpu_type="H100",
    )
    assert flops == {"matmul": 2 * 64 * 64 * 128}
    assert precisions == {5}
