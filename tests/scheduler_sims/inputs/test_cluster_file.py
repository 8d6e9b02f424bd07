from __future__ import annotations

import re

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import GIB
from scheduler_sims.inputs.cluster_file import MAX_GPUS_PER_NODE, MAX_NODES, load_cluster
from scheduler_sims.interface.costs import COST_NAMES, ClusterCosts


@pytest.fixture
def load(reader):
    return reader(load_cluster, "cluster.yaml")


def test_a_counted_node_becomes_numbered_nodes_with_devices_of_their_own(load):
    spec = load(
        """
        nodes:
          - {name: big, count: 2, gpus: 2, gpu_type: V100, cpus: 8.5, memory_gib: 64, labels: {rack: 1}}
          - {name: small, cpus: 4}
        """
    )
    assert [node.name for node in spec.nodes] == ["big-1", "big-2", "small"]
    big, _, small = spec.nodes
    assert (big.cpu_milli, big.memory_bytes, big.labels) == (8500, 64 * GIB, {"rack": "1"})
    assert [device.uuid for device in big.devices] == [device_uuid("big-1", 0), device_uuid("big-1", 1)]
    assert (big.gpu_type, small.gpu_type) == ("Tesla_V100-PCIE-32GB", None)
    assert (spec.gpus, spec.gpu_types) == (4, ("Tesla_V100-PCIE-32GB",))
    assert spec.costs == ClusterCosts()


def test_gpu_memory_can_differ_from_the_catalogue(load):
    spec = load("nodes: [{name: n, gpus: 1, gpu_type: T4, gpu_memory_gib: 2.5, cpus: 1}]")
    assert spec.nodes[0].devices[0].memory_bytes == 2.5 * GIB


def test_what_the_jobs_of_a_node_share(load):
    links = "links: [{gpus: [0, 1], speed: 2}, {gpus: [2]}]"
    spec = load(f"nodes: [{{name: n, count: 2, gpus: 3, gpu_type: T4, cpus: 1, network: 0.5, storage: 1, {links}}}]")
    uuids = [device_uuid("n-2", index) for index in range(3)]
    assert spec.resources["n-2"] == (
        HostResource("storage"),
        HostResource("network", 0.5),
        HostResource("link-0", 2.0, tuple(uuids[:2])),
        HostResource("link-1", 1.0, tuple(uuids[2:])),
    )
    assert load("nodes: [{name: n, cpus: 1}]").resources == {}


def test_instances_are_behind_the_link_of_their_gpu(load):
    spec = load(
        "nodes: [{name: n, gpus: 2, gpu_type: H100, cpus: 1, mig: {4g.40gb: 1, 3g.40gb: 1}, links: [{gpus: [1]}]}]"
    )
    assert spec.resources["n"][0].devices == tuple(device.uuid for device in spec.nodes[0].devices[2:])


def test_gpus_are_cut_into_mig_instances(load):
    spec = load("nodes: [{name: n, gpus: 2, gpu_type: H100, cpus: 1, mig: {4g.40gb: 1, 3g.40gb: 1}}]")
    devices = spec.nodes[0].devices
    assert [(d.index, d.gpu_index, d.gpu_type[-7:]) for d in devices] == [
        (2, 0, "4g.40gb"),
        (3, 0, "3g.40gb"),
        (9, 1, "4g.40gb"),
        (10, 1, "3g.40gb"),
    ]
    assert spec.gpus == 4 and spec.gpu_types == tuple(f"NVIDIA-H100-80GB-HBM3-MIG-{n}g.40gb" for n in (4, 3))


@pytest.mark.parametrize("name", COST_NAMES)
def test_each_cost_is_read(load, name):
    assert load(f"nodes: [{{name: n, cpus: 1}}]\ncosts: {{{name}: 1.5}}").costs == ClusterCosts(**{name: 1.5})


@pytest.mark.parametrize(
    ("costs", "problem"),
    [
        ("host_slots: 0.5", "costs.host_slots: must be 0 (any number) or at least 1, not 0.5"),
        ("{host_slots: 2, shared_start_s: 1}", "costs.host_slots: can't stand beside shared_start_s"),
    ],
)
def test_slots_of_the_machines_that_mean_nothing_are_refused(load, costs, problem):
    text = costs if costs.startswith("{") else f"{{{costs}}}"
    with pytest.raises(InputError, match=re.escape(problem)):
        load(f"nodes: [{{name: n, cpus: 1}}]\ncosts: {text}")


NODE = "name: n, gpus: 1, gpu_type: T4, cpus: 1"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("cpus: 1", "nodes[0].name: must be letters, digits, '-' and '.', a letter or digit first, not None"),
        ("name: 7, cpus: 1", "nodes[0].name: must be letters"),
        ("name: a/b, cpus: 1", "not 'a/b'"),
        ("name: .., cpus: 1", "not '..'"),
        ("name: '', cpus: 1", "not ''"),
        ("name: n, cpus: 1, count: 0", f"nodes[0].count: must be a whole number from 1 to {MAX_NODES}, not 0"),
        ("name: n, cpus: 1, count: two", "nodes[0].count: must be a whole number from 1 to 10000, not 'two'"),
        ("name: n, cpus: 1, count: 1.5", "not 1.5"),
        ("name: n, cpus: 1, count: true", "not True"),
        ("name: n, cpus: 1, count: 1000000000000", "nodes[0].count: must be a whole number from 1 to 10000"),
        ("name: n, cpus: 1, gpus: -1", f"nodes[0].gpus: must be a whole number from 0 to {MAX_GPUS_PER_NODE}, not -1"),
        ("name: n, cpus: 1, gpus: 1000000000, gpu_type: T4", "nodes[0].gpus: must be a whole number from 0 to"),
        ("name: n, cpus: 1, gpus: 2", "nodes[0].gpu_type: is missing, but gpus is 2: name a type (see `emugpu gpus`)"),
        (
            "name: n, cpus: 1, gpu_type: T4",
            "nodes[0].gpu_type: is given, but gpus is 0: set gpus or leave gpu_type out",
        ),
        ("name: n, cpus: 1, gpu_memory_gib: 4", "nodes[0].gpu_memory_gib: is given, but gpus is 0"),
        (f"{NODE}, mig: {{1g.5gb: 7}}", "nodes[0].mig: Tesla-T4 has no MIG; types with MIG: NVIDIA_A100"),
        (
            "name: n, gpus: 1, gpu_type: A100, cpus: 1, mig: {1g.6gb: 1}",
            "nodes[0].mig: unknown MIG profile of NVIDIA_A100",
        ),
        (
            "name: n, gpus: 1, gpu_type: A100, cpus: 1, mig: {4g.20gb: 2}",
            "nodes[0].mig: 4g.20gb + 4g.20gb don't fit on one",
        ),
        (
            "name: n, gpus: 1, gpu_type: A100, cpus: 1, mig: {1g.5gb: 0}",
            "nodes[0].mig.1g.5gb: must be a whole number from 1",
        ),
        (
            "name: n, gpus: 1, gpu_type: A100, cpus: 1, mig: 1g.5gb",
            "nodes[0].mig: must be a mapping of profiles to counts",
        ),
        ("name: n, cpus: 1, mig: {1g.5gb: 1}", "nodes[0].mig: is given, but gpus is 0: set gpus or leave mig out"),
        (
            "name: n, gpus: 1, gpu_type: A100, cpus: 1, sharing: mps, mig: {1g.5gb: 1}",
            "nodes[0].mig: instances have one job each; leave mig or sharing (mps) out",
        ),
        (
            "name: n, gpus: 1, gpu_type: A100-MIG-3g.20gb, cpus: 1",
            "nodes[0].gpu_type: is a MIG instance; give gpu_type: NVIDIA_A100-SXM4-40GB and mig: {3g.20gb: ...}",
        ),
        (f"{NODE}, gpu_memory_gib: 0", "nodes[0].gpu_memory_gib: must be a number > 0 and at most 1e+08, not 0"),
        (
            f"{NODE}, gpu_memory_gib: much",
            "nodes[0].gpu_memory_gib: must be a number > 0 and at most 1e+08, not 'much'",
        ),
        ("name: n", "nodes[0].cpus: is missing"),
        ("name: n, cpus: 0", "nodes[0].cpus: must be a number > 0 and at most 1e+08, not 0"),
        ("name: n, cpus: 0.0001", "nodes[0].cpus: must be at least 0.001, not 0.0001"),
        ("name: n, cpus: -2", "nodes[0].cpus: must be a number > 0 and at most 1e+08, not -2"),
        ("name: n, cpus: .nan", "nodes[0].cpus: must be a number > 0 and at most 1e+08, not nan"),
        ("name: n, cpus: .inf", "nodes[0].cpus: must be a number > 0 and at most 1e+08, not inf"),
        ("name: n, cpus: false", "nodes[0].cpus: must be a number > 0 and at most 1e+08, not False"),
        ("name: n, cpus: 1, memory_gib: -1", "nodes[0].memory_gib: must be a number >= 0 and at most 1e+08, not -1"),
        ("name: n, cpus: 1, labels: [a]", "nodes[0].labels: must be a mapping of texts"),
        ("name: n, cpus: 1, sharing: mqs", "nodes[0].sharing: unknown way to share a GPU 'mqs'"),
        (
            "name: n, cpus: 1, sharing: mps, replicas: -1",
            "nodes[0].replicas: must be a whole number from 0 to 1024, not -1",
        ),
        ("name: n, cpus: 1, replicas: 2", "nodes[0].replicas: is given, but nothing is shared"),
        ("name: n, cpus: 1, storage: 0", "nodes[0].storage: must be a number > 0 and at most 1e+08, not 0"),
        ("name: n, cpus: 1, network: fast", "nodes[0].network: must be a number > 0 and at most 1e+08, not 'fast'"),
        (f"{NODE}, links: 2", "nodes[0].links: must be a list of links, such as [{gpus: [0, 1]}]"),
        (f"{NODE}, links: [{{gpus: []}}]", "nodes[0].links[0].gpus: must be a list of numbers of GPUs (0 to "),
        (f"{NODE}, links: [{{gpus: [9]}}]", "nodes[0].links[0].gpus: must be a list of numbers of GPUs (0 to "),
        (f"{NODE}, links: [{{gpus: [0], speed: -1}}]", "nodes[0].links[0].speed: must be a number > 0"),
        (f"{NODE}, links: [{{gpus: [0]}}, {{gpus: [0]}}]", "nodes[0].links[1].gpus: a GPU is behind one link"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(refused, node, message):
    told = refused(f"nodes:\n  - {{{node}}}\n")
    assert told.startswith("cluster.yaml: nodes[0]")
    assert message in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{nmae: n, cpus: 1}]", "cluster.yaml: nodes[0]: unknown field 'nmae'; did you mean name?"),
        ("node: []", "cluster.yaml: unknown field 'node'; did you mean nodes?"),
        ("nodes: [{name: n, cpus: 1}]\ncosts: {strat_s: 1}", "costs: unknown field 'strat_s'; did you mean start_s"),
        ("nodes: [{name: n, gpus: 1, cpus: 1, gpu_type: Tesla-T5}]", "gpu_type: unknown GPU type 'Tesla-T5'; did you"),
        ("nodes: [{name: n, gpus: 1, cpus: 1, gpu_type: }]", "nodes[0].gpu_type: unknown GPU type 'None'"),
    ],
)
def test_an_unknown_name_comes_with_a_suggestion(refused, text, message):
    assert message in refused(text, UnknownNameError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster.yaml: must be a mapping with nodes, costs"),
        ("[1, 2]", "cluster.yaml: must be a mapping with nodes, costs"),
        ("costs: {}", "cluster.yaml: nodes: must be a list of at least one node"),
        ("nodes: []", "cluster.yaml: nodes: must be a list of at least one node"),
        ("nodes: {name: n}", "cluster.yaml: nodes: must be a list of at least one node"),
        ("nodes: [5]", "cluster.yaml: nodes[0]: must be a mapping with name, count"),
        (
            "nodes: [{name: n, cpus: 1}]\ncosts: 5",
            "cluster.yaml: costs: must be a mapping with submit_s, serial_submit_s",
        ),
        (
            "nodes: [{name: n, cpus: 1}]\ncosts: {stop_s: -1}",
            "costs.stop_s: must be a number >= 0 and at most 1e+08, not -1",
        ),
        (
            "nodes: [{name: n, cpus: 1}]\ncosts: {stop_s: .nan}",
            "costs.stop_s: must be a number >= 0 and at most 1e+08, not nan",
        ),
        (
            "nodes: [{name: n, cpus: 1}]\ncosts: {stop_s: soon}",
            "costs.stop_s: must be a number >= 0 and at most 1e+08, not 'soon'",
        ),
        ("nodes: [{name: n, cpus: 1}, {name: n, cpus: 2}]", "nodes: 2 nodes are called 'n'; names must differ"),
        ("nodes: [{name: n, count: 2, cpus: 1}, {name: n-2, cpus: 2}]", "nodes: 2 nodes are called 'n-2'"),
    ],
)
def test_a_wrong_shape_is_reported(refused, text, message):
    assert message in refused(text)


def test_too_many_nodes_in_several_entries_are_refused(refused):
    entries = "\n".join(f"  - {{name: n{i}, count: 5000, cpus: 1}}" for i in range(3))
    assert refused(f"nodes:\n{entries}") == f"cluster.yaml: nodes: at most {MAX_NODES} nodes are supported"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes:\n  - {name: n\n", "cluster.yaml:3: not valid YAML: expected ',' or '}'"),
        ("nodes:\n\t- name: n\n", "cluster.yaml:2: not valid YAML: found character '\\t'"),
        ("a: b: c", "cluster.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("nodes: 2001-99-99", "cluster.yaml: not valid YAML: month must be in 1..12"),
        ("nodes: []\nnodes: []", "cluster.yaml:2: not valid YAML: 'nodes' is given twice"),
        ("nodes:\n- name: n\n  cpus: 1\n  cpus: 2", "cluster.yaml:4: not valid YAML: 'cpus' is given twice"),
        ("nodes: !!python/object:os.system {}", "not valid YAML: could not determine a constructor"),
    ],
)
def test_what_is_not_yaml_is_reported_with_its_line(refused, text, message):
    assert message in refused(text)


def test_what_is_nested_too_deeply_is_reported(refused):
    assert refused("nodes: " + "[" * 5_000) == "cluster.yaml: is nested too deeply"


def test_a_value_that_stands_for_very_much_is_reported_briefly(refused):
    lines = ["b0: &b0 [x, x]", *(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]" for n in range(1, 30))]
    bomb = "".join(f"  {line}\n" for line in lines)
    told = refused(f"nodes:\n- name:\n{bomb}".replace("  b", "    b"))
    assert "nodes[0].name: must be letters" in told
    assert len(told) < 300


def test_bytes_that_are_not_text_are_reported(refused):
    assert refused(b"nodes: \xff\xfe") == "cluster.yaml: is not UTF-8 text"


@pytest.mark.parametrize(("name", "why"), [("missing.yaml", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read_is_reported(tmp_path, name, why):
    with pytest.raises(InputError, match=f"can't read the cluster file: {why}"):
        load_cluster(tmp_path / name)
