"""Collectives of NCCL between two processes."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def _processes(work) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    multiprocessing.spawn(_member, (work,), nprocs=2)


def _member(rank: int, work) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    work(rank)
    dist.barrier()
    torch.cuda.synchronize()
    dist.destroy_process_group()


def _collectives(rank: int) -> None:
    mine = torch.tensor([1.0 + rank, 2.0]).cuda()
    total = mine.clone()
    dist.all_reduce(total)
    assert total.tolist() == [3.0, 4.0]
    both = [torch.empty(2, device="cuda") for _ in range(2)]
    dist.all_gather(both, mine)
    assert [part.tolist() for part in both] == [[1.0, 2.0], [2.0, 2.0]]
    part = torch.empty(1, device="cuda")
    dist.reduce_scatter_tensor(part, mine)
    assert part.tolist() == [[3.0], [4.0]][rank]
    dist.broadcast(mine, 1)
    assert mine.tolist() == [2.0, 2.0]
    swapped = torch.empty(2, device="cuda")
    dist.all_to_all_single(swapped, torch.tensor([10.0 * rank, 10.0 * rank + 1]).cuda())
    assert swapped.tolist() == [float(rank), 10.0 + rank]
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    dist.all_gather_object(objects, "longer" * (1 + 9 * rank))
    assert objects == ["longer", "longer" * 10]
    wanted = [{"sizes": list(range(300))}, "text" * 20, None, 5]
    for turn in range(2):  # the second time in memory that had other objects
        objects = wanted if rank == 0 else [None] * 4
        dist.broadcast_object_list(objects, src=0)
        assert objects == wanted, turn
        if rank == 0:
            dist.send_object_list(wanted, dst=1)
            dist.send_object_list([turn], dst=1, use_batch=True)
        else:
            objects, one = [None] * 4, [None]
            dist.recv_object_list(objects, src=0)
            dist.recv_object_list(one, src=0, use_batch=True)
            assert objects == wanted and one == [turn], turn


def collectives() -> None:
    _processes(_collectives)


def _late_ranks(rank: int) -> None:
    sizes, mine = torch.zeros(2, dtype=torch.int64, device="cuda"), torch.tensor([25 + 5000 * rank]).cuda()
    for turn in range(6):  # one rank comes late, so what the other one gives to its GPU meanwhile is done later
        for name, work in {"largest": _largest_size, "sum": _sum_and_more, "gather_object": _gathered}.items():
            dist.barrier()
            torch.cuda.synchronize()
            if rank == turn % 2:
                time.sleep(0.2)
            assert work(rank, sizes, mine), (name, turn)


def _largest_size(rank: int, sizes: torch.Tensor, mine: torch.Tensor) -> bool:
    each = [sizes[other].unsqueeze(0) for other in range(2)]
    dist.all_gather(each, mine)
    return max(each).item() == 5025


def _sum_and_more(rank: int, sizes: torch.Tensor, mine: torch.Tensor) -> bool:
    total = mine.clone()
    dist.all_reduce(total)
    return (total + 5).item() == 5055


def _gathered(rank: int, sizes: torch.Tensor, mine: torch.Tensor) -> bool:
    objects = [None, None] if rank == 0 else None
    dist.gather_object("a" * (10 + 5000 * rank), objects, dst=0)
    return rank == 1 or objects == ["a" * 10, "a" * 5010]


def late_ranks() -> None:
    _processes(_late_ranks)


def _point_to_point(rank: int) -> None:
    given, taken = torch.tensor([5.0 + rank]).cuda(), torch.empty(1, device="cuda")
    operations = [dist.P2POp(dist.isend, given, 1 - rank), dist.P2POp(dist.irecv, taken, 1 - rank)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert taken.item() == 6.0 - rank
    if rank == 0:
        dist.send(given, 1)
    else:
        dist.recv(taken, 0)
        assert taken.item() == 5.0


def point_to_point() -> None:
    _processes(_point_to_point)


def _groups(rank: int) -> None:
    mesh = dist.init_device_mesh("cuda", (2, 1), mesh_dim_names=("data", "model"))
    value = torch.tensor([float(rank)]).cuda()
    dist.all_reduce(value, group=mesh["data"].get_group())
    assert value.item() == 1.0
    from torch.distributed.tensor import Shard, distribute_tensor

    sharded = distribute_tensor(torch.arange(8.0).view(4, 2), mesh["data"], [Shard(0)])
    assert sharded.to_local().shape == (2, 2)
    assert sharded.full_tensor().cpu().tolist() == torch.arange(8.0).view(4, 2).tolist()


def groups_and_meshes() -> None:
    _processes(_groups)


def _symmetric(rank: int) -> None:
    import torch.distributed._symmetric_memory as symmetric

    memory = symmetric.empty(1024, device="cuda")
    symmetric.rendezvous(memory, dist.group.WORLD)


def symmetric_memory() -> None:
    _processes(_symmetric)
