"""NVLink domains: what a cluster file states, which runs they join, and what that means for the step time."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.parallelism import Parallelism
from emulator_runtime.workloads.step_costs.work import Spread
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.policies.goodput.shapes import Shape, imagined

NVL = "nodes: [{name: h, count: 5, gpus: 4, gpu_type: NVIDIA-H100-80GB-HBM3, cpus: 64, nvlink_domain: 8}]\n"
PAIRS = "nodes: [{name: v, gpus: 4, gpu_type: NVIDIA_A100-SXM4-40GB, cpus: 64, nvlink_domain: 2}]\n"


@pytest.fixture
def load(reader):
    return reader(load_cluster, "cluster.yaml")


def on(cluster, *devices):
    """A run on these devices, each as node/index."""
    tasks = {}
    for name in devices:
        node, index = name.split("/")
        spec = next(spec for spec in cluster.nodes if spec.name == node)
        device = spec.devices[int(index)]
        tasks.setdefault(node, []).append(DeviceShare(device.uuid, device.gpu_type))
    return Allocation("gpu", tuple(TaskPlacement(node, tuple(shares), 1000) for node, shares in tasks.items()))


def test_a_domain_of_several_nodes(load):
    cluster = load(NVL)
    assert [node.nvlink_domain for node in cluster.nodes] == [f"h-{n}/nvlink" for n in (1, 1, 3, 3, 5)]
    assert cluster.nvlink.spread(on(cluster, "h-1/0", "h-2/3")) == Spread(1, 2, nodes_linked=True)
    assert cluster.nvlink.spread(on(cluster, "h-1/0", "h-1/1", "h-3/0", "h-3/1")) == Spread(2, 2)


def test_a_domain_that_is_part_of_a_node(load):
    cluster = load(PAIRS)
    (node,) = cluster.nodes
    assert node.nvlink == {0: "v/nvlink-0", 1: "v/nvlink-0", 2: "v/nvlink-1", 3: "v/nvlink-1"}
    assert node.nvlink_domain is None
    assert cluster.nvlink.spread(on(cluster, "v/2", "v/3")) == Spread(2)
    assert cluster.nvlink.spread(on(cluster, "v/1", "v/2")) == Spread(2, linked=False)


def test_what_a_run_on_the_empty_cluster_can_have(load):
    def best(cluster, gpus, nodes=1):
        return cluster.nvlink.best_spread(gpus, nodes, cluster.nodes[0].gpu_type)

    assert [best(load(NVL), gpus, nodes) for gpus, nodes in ((4, 1), (4, 2), (4, 3))] == [
        *(Spread(4), Spread(4, 2, nodes_linked=True), Spread(4, 3))
    ]
    assert [best(load(PAIRS), gpus) for gpus in (1, 2, 4)] == [Spread(1), Spread(2), Spread(4, linked=False)]
    assert best(load(PAIRS.replace(", nvlink_domain: 2", "")), 4) == Spread(4)


def test_a_gang_is_joined_only_if_each_of_its_nodes_has_enough_gpus_of_the_domain(load):
    eight = NVL.replace("gpus: 4", "gpus: 8")
    assert load(eight.replace("domain: 8", "domain: 2")).nvlink.best_spread(2, 2, "NVIDIA-H100-80GB-HBM3") == Spread(
        2, 2
    )
    assert load(NVL).nvlink.best_spread(2, 3, "NVIDIA-H100-80GB-HBM3") == Spread(2, 3)  # six GPUs, but on three nodes
    beside = load(f"{NVL[:-2]}, {{name: p, count: 2, gpus: 8, gpu_type: H100, cpus: 64}}]\n")
    assert beside.nvlink.best_spread(8, 2, "NVIDIA-H100-80GB-HBM3") == Spread(8, 2)
    assert beside.nvlink.best_spread(8, 1, "Tesla-T4") == Spread(8, linked=False)


def test_nodes_that_a_policy_only_imagines_are_joined_as_well_as_they_can_be(load):
    """Sia and Optimus ask for the speed on so many GPUs of so many nodes."""
    way = Configuration("gpu", 2, 1000, min_gpus=2, max_gpus=16, max_tasks=4)
    cluster = load(PAIRS.replace("name: v", "name: v, count: 2"))
    shapes = [Shape(gpus, nodes, "NVIDIA_A100-SXM4-40GB") for gpus, nodes in ((2, 1), (4, 1), (4, 2))]
    found = [cluster.nvlink.spread(imagined(way, shape)) for shape in shapes]
    assert found == [Spread(2), Spread(4, linked=False), Spread(2, 2)]


def test_domains_of_other_entries_have_other_names(load):
    entries = (
        "name: a, gpus: 2, gpu_type: A100, cpus: 8, nvlink_domain: 4}, {name: a, count: 2, gpus: 2, gpu_type: A100"
    )
    cluster = load(f"nodes: [{{{entries}, cpus: 8, nvlink_domain: 4}}]\n")
    assert [node.nvlink_domain for node in cluster.nodes] == ["a/nvlink", "a-1/nvlink", "a-1/nvlink"]


def test_the_node_is_the_domain_unless_it_is_stated(load):
    for text in (PAIRS.replace(", nvlink_domain: 2", ""), PAIRS.replace("nvlink_domain: 2", "nvlink_domain: 4")):
        cluster = load(text)
        assert (cluster.nodes[0].nvlink, cluster.nodes[0].nvlink_domain, cluster.nvlink.by_device) == ({}, "v", {})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            "gpus: 4, gpu_type: A100, nvlink_domain: 3",
            "must divide the 4 GPUs of a node, or be a multiple of them, not 3",
        ),
        (
            "gpus: 4, gpu_type: A100, nvlink_domain: 6",
            "must divide the 4 GPUs of a node, or be a multiple of them, not 6",
        ),
        ("gpus: 4, gpu_type: A100, nvlink_domain: 0", "must be a whole number from 1 to"),
        ("gpus: 4, gpu_type: Tesla-T4, nvlink_domain: 2", "is 2, but Tesla-T4 has no NVLink; leave it out"),
        ("nvlink_domain: 2", "is given, but gpus is 0"),
    ],
)
def test_what_can_not_be(reader, fields, problem):
    with pytest.raises(Exception, match=r"nvlink_domain") as refused:
        reader(load_cluster, "cluster.yaml")(f"nodes: [{{name: n, cpus: 8, {fields}}}]\n")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("cluster", "row", "problem"),
    [
        (NVL, "32,,16", "NVLink joins at most 8 here"),
        (PAIRS, "4,,4", "divides each layer over 4 GPUs (tensor_parallel); NVLink joins at most 2 here"),
        (NVL.replace(", nvlink_domain: 8", ""), "8,2,8", "NVLink joins at most 4 here"),
        (NVL, "8,1,8", "the largest node has 4"),
        (
            "nodes: [{name: w, gpus: 8, gpu_type: A100, cpus: 64, nvlink_domain: 4}, "
            "{name: q, count: 2, gpus: 4, gpu_type: A100, cpus: 64, nvlink_domain: 8}]\n",
            "8,1,8",
            "needs 8 GPUs on one node, each layer on 8 that NVLink joins; it joins fewer there",
        ),
        (
            NVL.replace("5", "9").replace("8}", "12}"),
            "32,,8",
            "nodes with the same GPU type, those of a layer in one NVLink domain; 6 are",
        ),
    ],
)
def test_layers_that_no_domain_holds_are_refused(tmp_path, cluster, row, problem):
    gpus, nodes, tensor = row.split(",")
    (tmp_path / "jobs.csv").write_text(
        f"job_id,num_gpus,nodes,tensor_parallel,gpu_duration_s\na,{gpus},{nodes or int(gpus) // 4},{tensor},60\n"
    )
    (tmp_path / "cluster.yaml").write_text(cluster)
    with pytest.raises(Exception, match=r"jobs\.csv:2") as refused:
        Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")
    assert problem in str(refused.value)


@pytest.mark.parametrize(("gpus", "nodes", "tensor"), [(8, 2, 8), (16, 4, 8), (16, 4, 4), (4, 1, 4)])
def test_layers_that_a_domain_holds_run(tmp_path, gpus, nodes, tensor):
    (tmp_path / "jobs.csv").write_text(
        f"job_id,num_gpus,nodes,tensor_parallel,gpu_duration_s\na,{gpus},{nodes},{tensor},60\n"
    )
    (tmp_path / "cluster.yaml").write_text(NVL)
    (record,) = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml").simulate("fifo").jobs
    assert record.jct_s == pytest.approx(60)


def test_mig_instances_of_a_node_are_joined_as_before(tmp_path):
    (tmp_path / "jobs.csv").write_text("job_id,num_gpus,tensor_parallel,gpu_duration_s\na,4,4,60\n")
    (tmp_path / "cluster.yaml").write_text(
        "nodes: [{name: e, gpus: 2, gpu_type: A100, cpus: 8, mig: {3g.20gb: 1, 4g.20gb: 1}}]\n"
    )
    assert (
        Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml").simulate("fifo").jobs[0].status == "finished"
    )


@pytest.mark.parametrize(("gpus", "nodes", "domains"), [(2, 1, (1, 2)), (4, 2, (2, 4))])
def test_the_exchange_of_gradients_takes_the_links_that_join_the_gpus(tmp_path, gpus, nodes, domains):
    """VGG-16 has 553 MB of gradients: on one node over the hosts' links or NVLink, on two over the network or NVLink."""
    (tmp_path / "jobs.csv").write_text(f"job_id,num_gpus,nodes,model,batch_size,steps\na,{gpus},{nodes},vgg16,32,100\n")
    took = []
    for size in domains:
        (tmp_path / "cluster.yaml").write_text(
            f"nodes: [{{name: v, count: 2, gpus: 2, gpu_type: NVIDIA_A100-SXM4-40GB, cpus: 64, nvlink_domain: {size}}}]\n"
        )
        experiment = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")
        (record,) = experiment.simulate("fifo").jobs
        took.append(record.jct_s)
        assert record.jct_s == pytest.approx(experiment.truth.duration_s("a", "gpu", None))
    assert took[1] < 0.8 * took[0]


def test_layers_are_joined_if_each_domain_has_whole_ones():
    assert Parallelism(2).layers_fit(["a", "b", "a", "b"])
    assert not Parallelism(2).layers_fit(["a", "b", "b", "b"])
    assert Parallelism().layers_fit(["a", "b"])
