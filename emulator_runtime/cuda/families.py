"""The NVIDIA libraries that are emulated: their file names by CUDA release, and what a function answers that isn't emulated.

`symbols/NAME.txt` lists the functions of a family that programs want. `src/libraries/NAME.c` (or several files in
`src/libraries/NAME/`) emulates some of them; the others answer "not supported".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
SOURCES = _HERE / "src"
SYMBOLS = _HERE / "symbols"

_HASH = re.compile(r"[.-][0-9a-f]{8}(?=\.so\b)")
"""What auditwheel inserts into the name of a library that it copies into a wheel, as in libcudart.3eda8113.so.13."""


@dataclass(frozen=True, slots=True)
class Family:
    """A library in all its releases.

    `sonames`: the CUDA release (12, 13) for which the library of that name is compiled. `aliases`: other file names under
    which programs open it. `version`: the version that its symbols carry, with SONAME for the SONAME; empty: none.
    `not_supported`: the status that a function returns which isn't emulated. `prefixes`: how the names of its functions begin.
    `answers`: what functions without a status return instead, in C, by a pattern for the whole name; the first that fits counts.
    `parts`: files of `src/libraries/mathematics/` that are compiled into it. `links`: emugpu's own libraries that it needs beside
    the core.
    """

    name: str
    title: str
    sonames: Mapping[str, int]
    prefixes: tuple[str, ...]
    not_supported: int
    version: str = "SONAME"
    aliases: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files that emulate it; none: every function answers "not supported"."""
        folder = SOURCES / "libraries"
        one = folder / f"{self.name}.c"
        parts = [folder / "mathematics" / name for name in self.parts]
        return (*([one] if one.exists() else []), *sorted((folder / self.name).glob("*.c")), *parts)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions that programs want; none if there is no list."""
        path = SYMBOLS / f"{self.name}.txt"
        return tuple(path.read_text(encoding="ascii").split()) if path.exists() else ()

    def answer(self, function: str) -> str:
        """What `function` returns if it isn't emulated, as a C expression."""
        fitting = (answer for pattern, answer in self.answers.items() if re.fullmatch(pattern, function))
        return next(fitting, str(self.not_supported))


CUDA_STATE = "libemugpu_cuda.so"
"""The state that the driver and the runtime have in common, once in a process."""

_TEXT = '(long)"not supported"'
_NULL = "0"

FAMILIES = (
    Family(
        "driver",
        "CUDA driver",
        {"libcuda.so.1": 13},
        ("cu",),
        801,
        version="",
        aliases=("libcuda.so",),
        links=(CUDA_STATE,),
    ),
    Family(
        "runtime",
        "CUDA runtime",
        {"libcudart.so.12": 12, "libcudart.so.13": 13},
        ("cuda", "__cuda"),
        801,
        answers={"cudaGetError(String|Name)": _TEXT},
        links=(CUDA_STATE,),
    ),
    Family(
        "cublas",
        "cuBLAS",
        {"libcublas.so.12": 12, "libcublas.so.13": 13},
        ("cublas",),
        15,
        answers={"cublasGetStatus(String|Name)": _TEXT},
        parts=("objects.c", "work_formulas.c", "cublas_types.c"),
    ),
    Family(
        "cublaslt",
        "cuBLASLt",
        {"libcublasLt.so.12": 12, "libcublasLt.so.13": 13},
        ("cublasLt",),
        15,
        answers={"cublasLtGetStatus(String|Name)": _TEXT, "cublasLtGet(Version|CudartVersion)": _NULL},
        parts=("objects.c", "work_formulas.c", "cublas_types.c"),
    ),
    Family(
        "cudnn",
        "cuDNN",
        {"libcudnn.so.9": 13},
        ("cudnn",),
        3000,
        answers={"cudnnGetErrorString": _TEXT, "cudnnGet(Version|CudartVersion|MaxDeviceVersion)": _NULL},
        parts=("objects.c", "work_formulas.c"),
    ),
    Family(
        "nccl",
        "NCCL",
        {"libnccl.so.2": 13},
        ("nccl",),
        5,  # ncclInvalidUsage; NCCL has no status of its own for what it doesn't support
        version="",
        answers={"ncclGet(ErrorString|LastError)": _TEXT},
    ),
    Family(
        "nvml",
        "NVML",
        {"libnvidia-ml.so.1": 13},
        ("nvml",),
        3,
        version="",
        aliases=("libnvidia-ml.so",),
        answers={"nvmlErrorString": _TEXT},
    ),
    Family("cufft", "cuFFT", {"libcufft.so.11": 12, "libcufft.so.12": 13}, ("cufft",), 16),
    Family("cusparse", "cuSPARSE", {"libcusparse.so.12": 13}, ("cusparse",), 10, parts=("objects.c",)),
    Family("cusparselt", "cuSPARSELt", {"libcusparseLt.so.0": 13}, ("cusparseLt",), 10, version=""),
    Family(
        "cusolver",
        "cuSOLVER",
        {"libcusolver.so.11": 12, "libcusolver.so.12": 13},
        ("cusolver",),
        9,
        parts=("objects.c",),
    ),
    Family("curand", "cuRAND", {"libcurand.so.10": 13}, ("curand",), 999),  # CURAND_STATUS_INTERNAL_ERROR
    Family(
        "nvrtc",
        "NVRTC",
        {"libnvrtc.so.12": 12, "libnvrtc.so.13": 13},
        ("nvrtc",),
        11,  # NVRTC_ERROR_INTERNAL_ERROR
        parts=("objects.c",),
    ),
    Family("cupti", "CUPTI", {"libcupti.so.12": 12, "libcupti.so.13": 13}, ("cupti",), 27),
    Family(
        "nvshmem",
        "NVSHMEM",
        {"libnvshmem_host.so.3": 13},
        ("nvshmem",),
        -1,
        version="NVSHMEM",
        answers={"nvshmem_(malloc|ptr)|nvshmemx_mc_ptr": _NULL},
    ),
    Family(
        "cufile",
        "cuFile",
        {"libcufile.so.0": 13},
        ("cuFile",),
        5007,  # CU_FILE_PLATFORM_NOT_SUPPORTED, the lower half of a CUfileError_t
        version="",
        answers={"cuFile(Read|Write)": "-5007"},
    ),
    Family("nvjpeg", "nvJPEG", {"libnvjpeg.so.12": 12, "libnvjpeg.so.13": 13}, ("nvjpeg",), 9),
)


def cuda_state_sources() -> tuple[Path, ...]:
    """The files of CUDA_STATE."""
    return tuple(sorted((SOURCES / "libraries" / "cuda").glob("*.c")))


@cache
def families_by_soname() -> Mapping[str, Family]:
    """The family of each emulated library, by its SONAME and by the other names under which it is opened."""
    return {name: family for family in FAMILIES for name in (*family.sonames, *family.aliases)}


def soname_of(name: str) -> str:
    """The SONAME of a library that a wheel brings along under a name with a hash; other names are returned as they are."""
    return _HASH.sub("", name)


def family_of_library(name: str) -> Family | None:
    """The family of a library file, None if it isn't emulated."""
    return families_by_soname().get(soname_of(name))


def family_of_function(function: str, among: Iterable[Family] = FAMILIES) -> Family | None:
    """The family whose functions are named so; the longest prefix counts, as cublasLt begins with cublas, too."""
    matches = [
        (len(prefix), family)
        for family in among
        for prefix in family.prefixes
        if re.match(re.escape(prefix) + r"(?=[A-Z_0-9])", function)
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None
