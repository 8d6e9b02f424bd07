"""Random calls of cuBLAS, cuBLASLt and cuDNN don't crash."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable

import pytest

from emulator_runtime.cuda.families import FAMILIES, SOURCES

CALLS = int(os.environ.get("EMUGPU_FUZZ_CALLS", "20000"))
MOST_S = 60 + CALLS / 1000


@pytest.mark.timeout(60 + MOST_S)
@pytest.mark.parametrize(
    ("family", "soname"),
    [("cublas", "libcublas.so.13"), ("cublaslt", "libcublasLt.so.13"), ("cudnn", "libcudnn.so.9")],
)
@pytest.mark.parametrize("seed", range(2))
def test_any_call_is_answered(run_core: Callable[..., str], family: str, soname: str, seed: int) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    sources = [str(path) for each in FAMILIES if each.name == family for path in each.sources]
    folders = [str(SOURCES / "core"), str(SOURCES / "libraries")]
    printed = run_core(
        f"""
        from math_fuzz import functions, random_calls
        known = functions({compiler!r}, {sources!r}, {folders!r})
        assert len(known) > 20
        print(random_calls(known, {soname!r}, {CALLS}, {seed}))
        """,
        warp=1,
        log=0,
        timeout_s=MOST_S,
    )
    answers: dict[int, int] = ast.literal_eval(printed.splitlines()[0])
    assert sum(answers.values()) == CALLS
    assert answers[0] > CALLS / 20, "some calls are right"
