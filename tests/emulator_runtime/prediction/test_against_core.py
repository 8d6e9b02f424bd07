"""The prediction's arithmetic beside the online emulation's, compiled from its C files: equal on random work."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.cuda.kernel_times import Launch, table_text
from emulator_runtime.prediction.engine import Engine
from emulator_runtime.prediction.estimators import Anchored, KernelTable, Roofline, demangled
from emulator_runtime.prediction.links import Links
from emulator_runtime.prediction.records import Collective, Communicator, Work, WorkKind
from emulator_runtime.prediction.steps import StepWork, step_factor, step_ns
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.cuda_properties import PRECISIONS, cuda_properties

HERE = Path(__file__).parent
SOURCES = HERE.parents[2] / "emulator_runtime" / "cuda" / "src"
FILES = ("core/cost.c", "core/engine.c", "core/step.c", "core/kernel_table.c", "libraries/nccl/link_model.c")
TYPES = sorted(bundled_catalogue().specs)
KINDS = {"all_reduce": 1, "reduce": 2, "broadcast": 3, "all_gather": 4, "reduce_scatter": 5, "all_to_all": 6}
SEND = 9


class CoreWork(ctypes.Structure):
    _fields_ = (
        ("kind", c_int),
        ("name", c_char_p),
        ("precision", c_int),
        ("flops", c_double),
        ("bytes", c_double),
        ("columns", c_double),
        ("depth", c_double),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
    )


class CoreStepWork(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_uint64),
        ("duration_ns", c_int64),
        ("dispatch_ns", c_int64),
        ("measured", c_bool),
        ("waited", c_bool),
    )


class Topology(ctypes.Structure):
    _fields_ = (("ranks", c_int), ("nodes", c_int), ("nvlink", c_bool), ("node", c_double), ("network", c_double))


class CoreEngine(ctypes.Structure):
    _fields_ = (("taken", c_int64 * 2 * 256), ("count", c_int))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("core") / "arithmetic.so"
    compiler = shutil.which("cc") or "gcc"
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", f"-I{SOURCES / 'core'}", "-o", str(library)]
    files = [str(HERE / "against_core.c"), *(str(SOURCES / name) for name in FILES)]
    subprocess.run([compiler, *options, *files, "-lm", "-ldl"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.cost_of_work.argtypes = [c_int, POINTER(CoreWork)]
    loaded.cost_of_copy.argtypes = [c_int, c_int, c_size_t]
    loaded.link_ns.argtypes = [POINTER(Topology), c_int, c_double, c_bool]
    loaded.engine_take.argtypes = [POINTER(CoreEngine), c_int64, c_int64, POINTER(c_int64)]
    loaded.table_ns.argtypes = [c_char_p, POINTER(c_uint), POINTER(c_uint), c_double]
    loaded.set_device.argtypes = [POINTER(c_double), c_double, c_double, c_double, POINTER(c_double)]
    loaded.emu_step_ns.argtypes = [POINTER(CoreStepWork), c_size_t, c_double]
    loaded.emu_step_factor.argtypes = [POINTER(CoreStepWork), c_size_t, c_int64]
    loaded.set_table.restype = c_bool
    loaded.emu_step_ns.restype = loaded.emu_step_factor.restype = c_double
    for name in ("cost_of_work", "cost_of_copy", "cost_in_ns", "link_ns", "engine_take", "table_ns"):
        getattr(loaded, name).restype = c_int64
    return loaded


def set_device(core: ctypes.CDLL, gpu_type: str) -> Roofline:
    roofline = Roofline(gpu_type)
    properties, spec = cuda_properties(gpu_type, ""), roofline.spec
    flops = (c_double * len(PRECISIONS))(*(properties.operations_per_s[name] for name in PRECISIONS))
    constants = (c_double * 9)(*(value or 0 for value in astuple(properties.roofline)))  # in emu_roofline's order
    links = spec.host_link_bytes_per_s, spec.peer_link_bytes_per_s
    core.set_device(flops, properties.memory_bytes_per_s, *links, constants)
    return roofline


amounts = st.one_of(st.just(0.0), st.floats(0, 1e18), st.integers(0, 10**13).map(float))
works = st.builds(
    Work,
    name=st.just("work"),
    kind=st.sampled_from(WorkKind).map(int),
    flops=amounts,
    bytes=amounts,
    precision=st.integers(0, len(PRECISIONS) - 1),
    columns=st.one_of(st.just(0.0), st.floats(1, 1e5)),
    depth=st.one_of(st.just(0.0), st.floats(1, 1e5)),
)


@settings(max_examples=500, deadline=None)
@given(gpu_type=st.sampled_from(TYPES), work=works)
def test_work_takes_as_long_as_online(core: ctypes.CDLL, gpu_type: str, work: Work) -> None:
    roofline = set_device(core, gpu_type)
    given = CoreWork(work.kind, b"work", work.precision, work.flops, work.bytes, work.columns, work.depth)
    assert roofline.work(work).duration_ns == core.cost_of_work(0, byref(given))


@settings(max_examples=300, deadline=None)
@given(
    gpu_type=st.sampled_from(TYPES), ends=st.tuples(st.integers(-1, 1), st.integers(-1, 1)), size=st.integers(0, 10**12)
)
def test_copies_take_as_long_as_online(core: ctypes.CDLL, gpu_type: str, ends: tuple[int, int], size: int) -> None:
    assert set_device(core, gpu_type).copy(*ends, size).duration_ns == core.cost_of_copy(*ends, size)


@settings(max_examples=200, deadline=None)
@given(gpu_type=st.sampled_from(TYPES), work=works, factor=st.floats(0.02, 50))
def test_anchored_work_takes_as_long_as_online(core: ctypes.CDLL, gpu_type: str, work: Work, factor: float) -> None:
    roofline = set_device(core, gpu_type)
    estimate_ns = roofline.work(work).duration_ns
    core.cost_in_ns.argtypes = [c_double]
    assert Anchored(roofline, factor).work(work).duration_ns == core.cost_in_ns(estimate_ns * factor / 1e9)


@settings(max_examples=500, deadline=None)
@given(
    operation=st.sampled_from(sorted(KINDS)),
    size=st.integers(0, 10**12),
    ranks=st.integers(2, 4096),
    per_node=st.sampled_from([1, 2, 4, 8]),
    peer=st.sampled_from([0.0, 50e9, 300e9, 450e9]),
    network=st.sampled_from([1.25e9, 12.5e9, 400e9]),
)
def test_collectives_take_as_long_as_online(
    core: ctypes.CDLL, operation: str, size: int, ranks: int, per_node: int, peer: float, network: float
) -> None:
    nodes = -(-ranks // per_node)
    members = tuple((f"node-{rank // per_node}", rank % per_node) for rank in range(ranks))
    call = Collective(0, 0, 0, 0, 0, 0, operation, size)
    found = Links(peer, 25e9, network).duration_ns(call, Communicator(0, "world", 0, members))
    topology = Topology(ranks, nodes, peer > 0, peer or 25e9, network)
    assert found == core.link_ns(byref(topology), KINDS[operation], size, False)


@settings(max_examples=200, deadline=None)
@given(
    sent=st.integers(0, 10**12),
    received=st.integers(0, 10**12),
    across=st.booleans(),
    peer=st.sampled_from([0.0, 300e9]),
)
def test_messages_take_as_long_as_online(
    core: ctypes.CDLL, sent: int, received: int, across: bool, peer: float
) -> None:
    members = (("one", 0), ("two" if across else "one", 1))
    call = Collective(0, 0, 0, 0, 0, 0, "send_receive", 0, ((1, sent, received),))
    found = Links(peer, 25e9, 12.5e9).duration_ns(call, Communicator(0, "pair", 0, members))
    topology = Topology(2, 1 + across, peer > 0, peer or 25e9, 12.5e9)
    largest = max(sent, received)
    assert found == (core.link_ns(byref(topology), SEND, largest, across) if largest else 0)


def test_a_rank_alone_has_nobody_to_wait_for() -> None:
    call = Collective(0, 0, 0, 0, 0, 0, "all_reduce", 1 << 30)
    assert Links(0, 25e9, 12.5e9).duration_ns(call, Communicator(0, "self", 0, (("one", 0),))) == 0


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=120))
def test_engines_divide_time_as_online(core: ctypes.CDLL, demands: list[tuple[int, int]]) -> None:
    engine, theirs, start = Engine(), CoreEngine(), c_int64()
    for ready_ns, duration_ns in demands:
        end_ns = core.engine_take(byref(theirs), ready_ns, duration_ns, byref(start))
        assert engine.take(ready_ns, duration_ns) == end_ns
        assert engine.start_ns == start.value
    taken = [tuple(theirs.taken[index]) for index in range(theirs.count)]
    assert list(zip(engine.starts, engine.ends, strict=True)) == taken


@settings(max_examples=200, deadline=None)
@given(
    works=st.lists(
        st.tuples(st.integers(1, 50_000_000), st.integers(0, 1_000_000), st.booleans(), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    factor=st.floats(0.1, 10),
)
def test_steps_are_anchored_as_online(
    core: ctypes.CDLL, works: list[tuple[int, int, bool, bool]], factor: float
) -> None:
    own = [StepWork(*fields) for fields in works]
    theirs = (CoreStepWork * len(works))(*(CoreStepWork(0, *fields) for fields in works))
    assert step_ns(own, factor) == core.emu_step_ns(theirs, len(works), factor)
    wanted_ns = round(step_ns(own, factor))
    assert step_factor(own, wanted_ns) == core.emu_step_factor(theirs, len(works), wanted_ns)


MANGLED = "_ZN2at6native3fooIfLi4EEEvT_PKc"


def test_the_kernel_table_is_read_as_online(core: ctypes.CDLL, tmp_path: Path) -> None:
    """A C++ name, and one of extern "C"; the same grid, one between two that are known, and one far away."""
    name = demangled(MANGLED)
    assert name.startswith("void at::native::foo<float, 4>(float, char const*")
    table = tmp_path / "table"
    measured = [
        (Launch(name, (256, 1, 1), (512, 1, 1)), 4821.0),
        (Launch(name, (2048, 1, 1), (512, 1, 1)), 31000.0),
        (Launch("plain", (4, 2, 1), (32, 1, 1)), 900.0),
    ]
    table.write_text(table_text(measured), encoding="utf-8")
    assert core.set_table(str(table).encode())
    roofline = set_device(core, "NVIDIA_A100-SXM4-40GB")
    known = KernelTable(table, roofline, 2500.0)
    assert known.dispatch_ns == roofline.dispatch_ns
    assert known.copy(0, -1, 1000) == roofline.copy(0, -1, 1000)
    for kernel in (MANGLED, "plain"):
        for grid in ((256, 1, 1), (300, 1, 1), (700, 1, 1), (9000, 2, 3), (1, 1, 1)):
            for block in ((512, 1, 1), (32, 1, 1)):
                found = known.work(Work(kernel, WorkKind.KERNEL, bytes=1e6, grid=grid, block=block))
                sizes = (c_uint * 3)(*grid), (c_uint * 3)(*block)
                assert found.duration_ns == core.table_ns(kernel.encode(), *sizes, 2500.0)
                assert found.source == "table"
                assert Anchored(known, 3).work(Work(kernel, WorkKind.KERNEL, grid=grid, block=block)).source == "table"
    unknown = Work("unknown", WorkKind.KERNEL, bytes=1e6, grid=(1, 1, 1), block=(1, 1, 1))
    assert known.work(unknown) == roofline.work(unknown)
    product = Work("plain", WorkKind.PRODUCT, flops=1e9)
    assert known.work(product) == roofline.work(product), "a library call of the same name isn't that kernel"
