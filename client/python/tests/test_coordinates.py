"""Which rank of how many: from arguments, environment and JAX; contradictions are errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import types
from typing import Any

import numpy
import pytest

import larder
from larder import _distributed

ALONE = (0, 1)


def found(**variables: str) -> tuple[int, int]:
    return _distributed.resolve(environ=variables)[:2]


def refused(
    *hints: str, rank: Any = None, world_size: Any = None, group: Any = None, **variables: str
) -> None:
    with pytest.raises(larder.InvalidArgument) as caught:
        _distributed.resolve(rank, world_size, group, environ=variables)
    for hint in hints:
        assert hint in str(caught.value)


def test_without_a_launcher_there_is_one_rank() -> None:
    assert found() == ALONE
    assert found(HOME="/root", LOCAL_RANK="3") == ALONE


def test_arguments_win_over_the_environment() -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2"}
    assert _distributed.resolve(3, 4, environ=environ)[:2] == (3, 4)
    assert _distributed.resolve(numpy.int64(3), numpy.uint8(4), environ=environ)[:2] == (3, 4)


def test_arguments_that_are_incomplete_or_impossible_are_refused() -> None:
    refused("rank is given without world_size", rank=1, RANK="1", WORLD_SIZE="4")
    refused("world_size is given without rank", world_size=4)
    refused("rank 4 of 4", rank=4, world_size=4)
    refused("rank is -1: a whole number", rank=-1, world_size=4)
    refused("rank 0 of 0", rank=0, world_size=0)
    refused("rank is '0': a whole number", rank="0", world_size=4)
    refused("rank is True: a whole number", rank=True, world_size=4)
    refused("together with a group", rank=0, world_size=2, group=object())
    refused("the group is a builtins.str", "DeviceMesh", group="dp")


def test_the_launchers_variables_are_understood() -> None:
    assert found(RANK="2", WORLD_SIZE="3") == (2, 3)
    assert found(SLURM_PROCID="5", SLURM_STEP_NUM_TASKS="8") == (5, 8)
    assert found(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2") == (1, 2)


def test_torchrun_variables_take_precedence_over_slurm() -> None:
    environ = {"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    assert found(**environ) == (9, 16)


def test_batch_script_outside_of_srun_has_one_rank() -> None:
    assert found(SLURM_PROCID="0", SLURM_NTASKS="8", SLURM_JOB_ID="77") == ALONE


def test_incomplete_or_contradictory_variables_are_refused() -> None:
    refused("WORLD_SIZE=4 but no RANK", "train_dataloader()", WORLD_SIZE="4")
    refused("RANK=1 but no WORLD_SIZE", RANK="1")
    refused("rank 4 of 4", RANK="4", WORLD_SIZE="4")
    refused("RANK='one'", RANK="one", WORLD_SIZE="4")
    refused("RANK='-1'", RANK="-1", WORLD_SIZE="4")
    slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    refused("rank 1 of 2 (SLURM_PROCID", "rank 1 of 4 (OMPI", **slurm, **mpi)


def test_rank_detection_imports_no_framework() -> None:
    program = (
        "import sys, larder\n"
        "from larder import _distributed\n"
        "_distributed.resolve()\n"
        "print([name for name in ('torch', 'jax', 'grain') if name in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert out.stdout.strip() == "[]"


def test_change_of_detected_rank_is_refused_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    early, said = _distributed.resolve(), _distributed.resolve(0, 1)
    _distributed.confirm(early)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(larder.InvalidArgument, match="has changed since the loader was made"):
        _distributed.confirm(early)
    _distributed.confirm(said)


def mesh_dimensions(names: tuple[str, ...] | None, count: int | None = None) -> list[int]:
    return _distributed._data_dimensions(count or len(names or ()), names)


def test_only_the_data_parallel_dimensions_of_a_mesh_count() -> None:
    assert mesh_dimensions(("dp", "tp")) == [0]
    assert mesh_dimensions(("tp", "dp")) == [1]
    assert mesh_dimensions(("pp", "dp_replicate", "dp_shard", "cp", "tp")) == [1, 2]
    assert mesh_dimensions(("replicate", "shard")) == [0, 1]
    assert mesh_dimensions(("whatever",)) == [0]
    assert mesh_dimensions(None, 1) == [0]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (None, "no names"),
        (("tp",), "no dimension that is known to divide the data"),
        (("foo", "tp"), "no dimension that is known to divide the data"),
        (("dp", "ep"), "a dimension 'ep'"),
    ],
)
def test_mesh_without_known_data_dimension_is_refused(names: Any, hint: str) -> None:
    with pytest.raises(larder.InvalidArgument, match=hint):
        mesh_dimensions(names, 2 if names is None else len(names))


def test_frameworks_that_disagree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 1,
        get_world_size=lambda: 4,
    )
    jax = types.SimpleNamespace(
        distributed=types.SimpleNamespace(is_initialized=lambda: True),
        process_index=lambda: 1,
        process_count=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    assert found() == (1, 4)
    refused("RANK=2", "rank 1 of 4 (torch.distributed)", RANK="2", WORLD_SIZE="4")
    refused("WORLD_SIZE=8", WORLD_SIZE="8")
    assert found(WORLD_SIZE="4", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1") == (1, 4)
    monkeypatch.setitem(sys.modules, "jax", jax)
    refused("(torch.distributed) and rank 1 of 2 (jax.distributed)")


JAX_PROCESS = """
import json, sys
import jax
from larder import _distributed
before = _distributed.resolve()
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
print(json.dumps([before[:2], _distributed.resolve()[:2]]))
jax.distributed.shutdown()
"""


def test_processes_of_jax_distributed_are_ranks() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", JAX_PROCESS, port]
    processes = [
        subprocess.Popen([*command, str(index)], stdout=subprocess.PIPE, text=True)
        for index in range(2)
    ]
    for index, process in enumerate(processes):
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out) == [[0, 1], [index, 2]]


@pytest.mark.parametrize(
    ("hosts", "variables"),
    [
        ("unknown", {}),
        ("presumed_this", {"MASTER_ADDR": "127.0.0.1"}),
        ("unknown", {"MASTER_ADDR": "localhost", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}),
        ("unknown", {"MASTER_ADDR": "node0"}),
        ("unknown", {"JOB_COMPLETION_INDEX": "1"}),
        ("this", {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node0"}),
        ("unknown", {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}),
        ("this", {"LOCAL_WORLD_SIZE": "4"}),
        ("this", {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "7"}),
        (
            "unknown",
            {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "7"},
        ),
        (
            "unknown",
            {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"},
        ),
        ("this", {"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "4"}),
        ("unknown", {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "4"}),
    ],
)
def test_ranks_share_a_host_if_the_launcher_says_so(hosts: str, variables: dict[str, str]) -> None:
    four = _distributed.resolve(1, 4)
    assert _distributed.rank_hosts(four, environ=variables) == hosts
