"""Real torch.distributed jobs over gloo: the batches of ranks, and training on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import larder
import rank
from harness import Node, S3Server
from order import Job

HERE = Path(__file__).parent


def torchrun(world: int, folder: Path, *arguments: str, script: str = "rank.py") -> list[Any]:
    """Runs a job, and returns what each rank found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)]
    command += ["--master-port", "0", "--standalone", str(HERE / script), *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{number}.json").read_text()) for number in range(world)]


@pytest.fixture(scope="module")
def four(node: Node, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The findings of four ranks."""
    folder = tmp_path_factory.mktemp("four")
    parts = ["found", "mesh", "group", "ddp", "fsdp", "fsdp1"]
    return torchrun(4, folder, node.address, str(folder), *parts)


@pytest.fixture(scope="module")
def two(node: Node, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The findings of two ranks."""
    folder = tmp_path_factory.mktemp("two")
    return torchrun(2, folder, node.address, str(folder), "found", "ddp", "fsdp", "fsdp1")


@pytest.mark.parametrize("world", ["two", "four"])
def test_ranks_are_found_before_and_after_torch_is_initialised(
    world: str, request: pytest.FixtureRequest
) -> None:
    ranks = request.getfixturevalue(world)
    for number, of in enumerate(ranks):
        assert of["before"] == of["found"]["coordinates"] == [number, len(ranks)]


@pytest.mark.parametrize("world", ["two", "four"])
def test_each_rank_reads_its_part_of_the_rust_clients_order(
    world: str, node: Node, request: pytest.FixtureRequest
) -> None:
    ranks = request.getfixturevalue(world)
    job = Job(node.address, len(ranks), batch_size=10)
    for number, of in enumerate(ranks):
        assert of["found"]["own"] == of["found"]["workers"] == job.batches(number)


def test_tensor_parallel_replicas_get_identical_batches(four: list[Any], node: Node) -> None:
    job = Job(node.address, 2, batch_size=10)
    for number, of in enumerate(four):
        for said in ("mesh", "dimension", "group"):
            assert of["mesh"][said] == job.batches(number // 2)


def test_both_dimensions_of_a_hybrid_mesh_divide_the_data(four: list[Any], node: Node) -> None:
    job = Job(node.address, 4, batch_size=10)
    for number, of in enumerate(four):
        assert of["mesh"]["both"] == job.batches(number)


def test_mesh_without_known_data_dimension_is_refused(four: list[Any]) -> None:
    for of in four:
        assert "a mesh of 2 dimensions has no names" in of["mesh"]["unnamed"]
        assert "no dimension that is known to divide the data" in of["mesh"]["replicas"]


def test_a_rank_outside_of_a_group_has_no_share(four: list[Any]) -> None:
    refused = [of["group"] for of in four]
    assert refused[:2] == ["none"] * 2
    assert all("this process is not in the process group" in text for text in refused[2:])


@pytest.fixture(scope="module")
def alone(node: Node) -> Any:
    """The weights of one process after the same global batches."""
    model = rank.network()
    return rank.train(larder.open(rank.URI, cluster=node.address), model, model)


@pytest.mark.parametrize("way", ["ddp", "fsdp", "fsdp1"])
@pytest.mark.parametrize("world", ["two", "four"])
def test_ranks_learn_the_weights_of_a_single_process(
    way: str, world: str, alone: Any, request: pytest.FixtureRequest
) -> None:
    for of in request.getfixturevalue(world):
        assert of[way]["steps"] == alone["steps"] == 24
        assert of[way]["weights"] == pytest.approx(alone["weights"], rel=1e-9)


def test_ranks_without_a_cluster_share_one_host_node(s3: S3Server, tmp_path: Path) -> None:
    prefix = s3.folder / "data" / "alone"
    prefix.mkdir()
    for file in (s3.folder / "data" / "images").glob("*.safetensors"):
        shutil.copy(file, prefix)
    larder.open("s3://data/alone", cluster="none")  # indexes it, which reads headers
    before = s3.counts()
    folder = tmp_path / "ranks"
    folder.mkdir()
    ranks = torchrun(4, folder, "s3://data/alone", str(folder), script="host_rank.py")
    after = s3.counts()
    (node,) = ranks[0]["nodes"]
    assert all(of["nodes"] == [node] for of in ranks)
    for epoch in range(2):
        delivered = [sample for of in ranks for sample in of["epochs"][epoch]]
        assert sorted(delivered) == list(range(300))
    data = sum(file.stat().st_size for file in prefix.glob("*.safetensors"))
    read = after["bytes_sent"] - before["bytes_sent"]
    assert data <= read < data + (64 << 10), "every byte once, and the manifest"
