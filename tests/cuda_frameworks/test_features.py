"""Features of PyTorch one by one: a function of features/ is a program, which ends well or names what isn't supported."""

from __future__ import annotations

import ast
import os

import pytest

from tests.cuda_frameworks.conftest import HERE, RunProgram

pytestmark = [pytest.mark.frameworks, pytest.mark.processes]

FEATURES = HERE / "features"
OPTIONS = {"fp8_products": ("--gpu-type", "H100")}
"""Options of `emugpu run`; by default a program has two A100."""
ENVIRONMENTS = {
    "allocator_of_cuda": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "expandable_segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}
LET_GO = "time.sleep(0.3)"
"""Before a program ends, PyTorch's autograd thread releases the graph. If Python before 3.14 ends meanwhile, it ends that thread
in a way that C++ answers by `terminate called without an active exception`."""
NOT_SUPPORTED = {
    "sparse_by_sparse": "cusparseSpGEMM",
    "half_of_a_matrix_sparse": "cusparseLtInit",
    "decoding_of_jpeg": "nvjpeg",
    "memory_of_another_process": "cudaIpcGetMemHandle",
    "files_to_gpus": "cuFileHandleRegister",
    "symmetric_memory": "cuMemExportToShareableHandle",
    "temperature": "nvmlDeviceGetTemperature",
}
"""What ends with "not supported: NAME", and the beginning of the name."""


def functions() -> dict[str, str]:
    """The programs and their modules."""
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(FEATURES.glob("*.py"))}
    return {
        node.name: module
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and module != "triton_kernel"
    }


@pytest.mark.parametrize("name", functions())
def test_feature(name: str, run_program: RunProgram) -> None:
    code = f"import time, torch; from {functions()[name]} import {name}; {name}(); torch.cuda.synchronize(); {LET_GO}"
    done = run_program(
        "-c",
        code,
        options=("--gpus", "2", *OPTIONS.get(name, ())),
        status=None,
        PYTHONPATH=f"{FEATURES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        **ENVIRONMENTS.get(name, {}),
    )
    missing = NOT_SUPPORTED.get(name)
    if missing is None:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert done.returncode != 0, done.stdout + done.stderr
        assert f"not supported: {missing}" in done.stderr, done.stdout + done.stderr


def test_most_features_work() -> None:
    working = functions().keys() - NOT_SUPPORTED.keys()
    assert len(working) >= 36
    assert NOT_SUPPORTED.keys() <= functions().keys()
