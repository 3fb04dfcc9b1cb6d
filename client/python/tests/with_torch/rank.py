"""One rank of a real torch.distributed job, started by torchrun: runs the parts named on the
command line and leaves its findings as JSON for the test.

    rank.py CLUSTER FOLDER PART...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import larder
import larder.torch
from larder import _distributed

URI = "s3://data/images"
GLOBAL_BATCH = 24


def samples(loader: larder.Loader) -> list[list[int]]:
    return [batch.samples.tolist() for batch in loader]


def error(make: Any) -> str:
    try:
        make()
    except larder.InvalidArgument as raised:
        return str(raised)
    return "none"


def found(ds: larder.Dataset) -> Any:
    """The coordinates that a loader finds by itself, directly and in a DataLoader's workers."""
    own = ds.loader(10, shuffle="global", seed=5)
    data = larder.torch.IterableDataset(ds, 10, shuffle="global", seed=5)
    loader = torch.utils.data.DataLoader(data, None, num_workers=2)
    return {
        "coordinates": _distributed.resolve()[:2],
        "own": samples(own),
        "workers": samples(loader),
    }


def mesh(ds: larder.Dataset) -> Any:
    """A 2 x 2 mesh of data and tensor parallelism, said in each way that there is."""
    whole = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    unnamed = init_device_mesh("cpu", (2, 2))

    def of(group: Any) -> list[list[int]]:
        return samples(ds.loader(10, shuffle="global", seed=5, group=group))

    return {
        "mesh": of(whole),
        "dimension": of(whole["dp"]),
        "group": of(whole.get_group("dp")),
        "both": of(both),
        "unnamed": error(lambda: of(unnamed)),
        "replicas": error(lambda: of(whole["tp"])),
    }


def group(ds: larder.Dataset) -> Any:
    """A process group of some of the ranks."""
    first = dist.new_group([0, 1])
    return error(lambda: ds.loader(group=first))


def locality(ds: larder.Dataset) -> Any:
    """Ranks as if on the hosts of two nodes in turn, by all ways to agree."""
    number, world = dist.get_rank(), dist.get_world_size()
    here = ["near", "far"][number % 2]
    ds = larder.open("s3://data/many", cluster=sys.argv[1])
    larder.Dataset.nodes_here = property(lambda _: [here])  # type: ignore[assignment,method-assign]
    hosts = [["near", "far"][rank % 2] for rank in range(world)]
    made = [ds.locality(hosts)]
    dist.broadcast_object_list(made, src=0)
    options: dict[str, Any] = {"shuffle": "global", "seed": 5}
    data = larder.torch.IterableDataset(ds, 10, locality=True, **options)
    order = larder.torch.BatchSampler(ds, 10, locality=True, **options)
    other = ds.locality(hosts[::-1]) if number == world - 1 else made[0]
    found = {
        "slices": samples(ds.loader(10, **options)),
        "found": samples(ds.loader(10, locality=True, **options)),
        "made": samples(ds.loader(10, locality=made[0], **options)),
        "workers": samples(torch.utils.data.DataLoader(data, None, num_workers=2)),
        "order": list(order),
        "differ": error(lambda: ds.loader(10, locality=other)),
    }
    if world == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        found["mesh"] = samples(ds.loader(10, group=mesh, locality=True, **options))
        found["part"] = error(lambda: ds.loader(10, group=mesh["dp"], locality=True))
    larder.Dataset.nodes_here = property(lambda _: ["nobody"])  # type: ignore[assignment,method-assign]
    return {**found, "nobody": error(lambda: ds.loader(10, locality=True))}


def ddp(ds: larder.Dataset) -> Any:
    model = network()
    return train(ds, model, DistributedDataParallel(model))


def fsdp(ds: larder.Dataset) -> Any:
    model = network()
    sharded = fully_shard(model)
    return train(ds, model, sharded)


def fsdp1(ds: larder.Dataset) -> Any:
    model = network()
    sharded = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    return train(ds, model, sharded)


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3072, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    ).double()


def train(ds: larder.Dataset, model: torch.nn.Module, trained: torch.nn.Module) -> Any:
    """Some steps; the weights at the end depend on exactly which samples each step saw."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-4)
    world = dist.get_world_size() if dist.is_initialized() else 1
    loader = ds.loader(GLOBAL_BATCH // world, shuffle="global", seed=5)
    steps = 0
    for _ in range(2):
        for batch in loader:
            image, label = batch["image"].double() / 255, batch["label"].double() / 300
            loss = torch.nn.functional.mse_loss(trained(image)[:, 0], label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    return {"steps": steps, "weights": weights(model, trained)}


def weights(model: torch.nn.Module, trained: torch.nn.Module) -> list[float]:
    """The sum of each weight, of all ranks' shards of it."""
    if isinstance(trained, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(trained):
            return [weight.sum().item() for weight in model.parameters()]
    whole = (getattr(weight, "full_tensor", lambda w=weight: w)() for weight in model.parameters())
    return [weight.sum().item() for weight in whole]


PARTS = {part.__name__: part for part in (found, mesh, group, locality, ddp, fsdp, fsdp1)}


def main() -> None:
    cluster, folder, *parts = sys.argv[1:]
    ds = larder.open(URI, cluster=cluster)
    early = ds.loader(10)
    before = _distributed.resolve()[:2]
    dist.init_process_group("gloo")
    list(early)
    results = {part: PARTS[part](ds) for part in parts} | {"before": before}
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
