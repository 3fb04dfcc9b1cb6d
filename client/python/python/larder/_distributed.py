"""Finds this process's rank and world size for data.

Ranks that hold replicas of the same input (tensor, pipeline or context parallelism) must get
identical batches. So these coordinates are those of data parallelism alone. They come from the
caller, else from a framework that is initialised, else from the environment of a launcher.
Ambiguous or contradictory coordinates are an error: a wrong guess would silently repeat or lose
samples.

Thread rule: pure functions of arguments, environment and frameworks.
Never imports a framework: a framework that is not imported is not initialised.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from larder import _arguments
from larder._errors import InvalidArgument
from larder._frameworks import imported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Mesh dimensions along which ranks read different samples, as the users of torch name them.
_DATA_DIMENSIONS = frozenset(
    {"dp", "ddp", "fsdp", "hsdp", "data", "batch", "data_parallel", "replicate", "shard"}
    | {"dp_replicate", "dp_shard", "dp_mod_ep", "data_replicate", "data_shard"}
)
# Mesh dimensions along which ranks work on the same samples.
_REPLICA_DIMENSIONS = frozenset(
    {"tp", "pp", "cp", "sp", "model", "tensor", "pipe", "pipeline", "context", "sequence"}
    | {"tensor_parallel", "pipeline_parallel", "context_parallel", "sequence_parallel"}
    | {"model_parallel", "mp"}
)

#: The hosts of a job's ranks. Ranks of one host share the memory of its node.
RankHosts = Literal["this", "presumed_this", "unknown"]

# Names of this host.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_SAY_SO = "pass rank= and world_size= of data parallelism"


class Coordinates(NamedTuple):
    """This process's rank among the processes that divide the samples."""

    rank: int
    world_size: int
    #: The source of both numbers, in words for messages.
    source: str
    #: Whether both were found and not passed by the caller. Found coordinates may change.
    found: bool

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} ({self.source})"


def resolve(
    rank: int | None = None,
    world_size: int | None = None,
    group: Any = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Coordinates:
    """The coordinates of this process, from the first of these sources that has them:

    1. `rank` and `world_size`;
    2. `group`, a torch `DeviceMesh` or `ProcessGroup` of data parallelism;
    3. torch.distributed or jax.distributed, if initialised;
    4. `RANK` and `WORLD_SIZE`;
    5. the variables of Slurm's srun or of Open MPI's mpirun;
    6. rank 0 of 1.

    Raises `InvalidArgument` if these are incomplete or contradict each other, or if a mesh does not
    say which of its dimensions divide the data.
    """
    if rank is not None or world_size is not None:
        return _from_arguments(rank, world_size, group)
    if group is not None:
        return _from_group(group)
    refuse_inside_worker("made")
    return _found(os.environ if environ is None else environ)


def confirm(coordinates: Coordinates) -> None:
    """Raises `InvalidArgument` if found coordinates have changed since.

    They change if a loader is made before the framework is initialised. The loader would then be
    rank 0 of 1 in every process, and each process would read all samples.
    """
    if not coordinates.found or worker_info() is not None:
        return
    now = _found(os.environ)
    if now[:2] != coordinates[:2]:
        raise InvalidArgument(
            "the rank of this process has changed since the loader was made",
            f"it was {coordinates} and is {now}",
            f"make the loader after the framework is initialised, or {_SAY_SO}",
        )


def rank_hosts(coordinates: Coordinates, *, environ: Mapping[str, str] | None = None) -> RankHosts:
    """Whether all ranks run on this host. The answer is the same on all ranks.

    It is "this" if the launcher started as many processes here as the job has. It is
    "presumed_this" if the master is on loopback. Ranks that the caller numbers may run anywhere.
    """
    environ = os.environ if environ is None else environ
    running = _from_torch() or _from_jax()
    if running is not None:
        processes = running.world_size
    else:
        processes = _number(environ, "WORLD_SIZE") or coordinates.world_size
    here = _number(environ, "LOCAL_WORLD_SIZE") or _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    if here is None and environ.get("SLURM_STEP_NUM_NODES") == "1":
        here = _number(environ, "SLURM_STEP_NUM_TASKS")
    if here is not None:
        return "this" if here == processes else "unknown"
    master = environ.get("MASTER_ADDR")
    # On Kubernetes, the pod of rank 0 may name itself by loopback.
    if master in _LOOPBACK and "KUBERNETES_SERVICE_HOST" not in environ:
        return "presumed_this"
    return "unknown"


def _found(environ: Mapping[str, str]) -> Coordinates:
    """The coordinates by frameworks and environment."""
    running = _agreed([_from_torch(), _from_jax()])
    if running is not None:
        _check_variables(running, environ)
        return running
    declared = _from_variables(environ, "RANK", "WORLD_SIZE")
    if declared is not None:
        return declared
    # SLURM_NTASKS is not used: a batch script has it outside of any srun.
    slurm = _from_variables(environ, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", strict=False)
    mpi = _from_variables(environ, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", strict=False)
    launched = _agreed([slurm, mpi])
    return launched or Coordinates(0, 1, "no launcher", found=True)


def _from_arguments(rank: int | None, world_size: int | None, group: Any) -> Coordinates:
    if rank is None or world_size is None:
        given, missing = ("rank", "world_size") if world_size is None else ("world_size", "rank")
        raise InvalidArgument(
            f"{given} is given without {missing}",
            "the other one could come from elsewhere and not fit",
            "pass both, or neither to have them found",
        )
    if group is not None:
        raise InvalidArgument(
            "rank and world_size are given together with a group",
            "both say which rank this is",
            "pass either",
        )
    rank = _arguments.integer("rank", rank, hint=_SAY_SO)
    world_size = _arguments.integer("world_size", world_size, hint=_SAY_SO)
    return _checked(rank, world_size, "arguments", False)


def _from_group(group: Any) -> Coordinates:
    distributed = imported("torch.distributed")
    device_mesh = imported("torch.distributed.device_mesh")
    if device_mesh is not None and isinstance(group, device_mesh.DeviceMesh):
        return _from_mesh(group)
    if distributed is not None and distributed.is_available():
        if group is distributed.GroupMember.NON_GROUP_MEMBER:
            raise _outside("the process group")
        if isinstance(group, distributed.ProcessGroup):
            rank = distributed.get_rank(group)
            if rank < 0:
                raise _outside("the process group")
            world = distributed.get_world_size(group)
            return Coordinates(rank, world, "the process group", found=False)
    raise InvalidArgument(
        f"the group is a {type(group).__module__}.{type(group).__qualname__}",
        "a torch DeviceMesh or ProcessGroup is understood",
        _SAY_SO,
    )


def _from_mesh(mesh: Any) -> Coordinates:
    """Row-major over the mesh's data-parallel dimensions."""
    place: Sequence[int] | None = mesh.get_coordinate()
    if place is None:
        raise _outside("the mesh")
    rank, world = 0, 1
    for dimension in _data_dimensions(mesh.ndim, mesh.mesh_dim_names):
        size = mesh.size(dimension)
        rank, world = rank * size + place[dimension], world * size
    return Coordinates(rank, world, "the mesh", found=False)


def _data_dimensions(count: int, names: Sequence[str] | None) -> list[int]:
    """Which of a mesh's dimensions divide the data."""
    if names is None:
        if count == 1:
            return [0]
        raise InvalidArgument(
            f"a mesh of {count} dimensions has no names",
            "which of them divide the data is not known",
            'name them (mesh_dim_names=("dp", "tp")), or pass a one-dimensional mesh',
        )
    data = [i for i, name in enumerate(names) if name in _DATA_DIMENSIONS]
    replica = [i for i, name in enumerate(names) if name in _REPLICA_DIMENSIONS]
    if count == 1 and not replica:
        return [0]
    if not data:
        raise InvalidArgument(
            f"the mesh {tuple(names)} has no dimension that is known to divide the data",
            "its ranks could share all samples or divide them",
            'pass the data-parallel part of the mesh (mesh["dp"]), or ' + _SAY_SO,
        )
    unknown = [name for i, name in enumerate(names) if i not in data and i not in replica]
    if unknown:
        raise InvalidArgument(
            f"the mesh {tuple(names)} has a dimension '{unknown[0]}'",
            "whether it divides the data is not known",
            f'pass the data-parallel part of the mesh (mesh["{names[data[0]]}"]), or {_SAY_SO}',
        )
    return data


def _outside(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"this process is not in {what}",
        "it has no share of the data",
        "make the loader only in processes of the group",
    )


def _from_torch() -> Coordinates | None:
    distributed = imported("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    rank, world = distributed.get_rank(), distributed.get_world_size()
    return Coordinates(rank, world, "torch.distributed", found=True)


def _from_jax() -> Coordinates | None:
    jax = imported("jax")
    # Asked first: process_count() alone would start JAX's backends.
    if jax is None or not jax.distributed.is_initialized():
        return None
    return Coordinates(jax.process_index(), jax.process_count(), "jax.distributed", found=True)


def _from_variables(
    environ: Mapping[str, str], rank_name: str, world_name: str, *, strict: bool = True
) -> Coordinates | None:
    """From a pair of variables. One without the other is an error if `strict`, else ignored."""
    rank, world = _number(environ, rank_name), _number(environ, world_name)
    if rank is not None and world is not None:
        return _checked(rank, world, f"{rank_name} and {world_name}", True)
    if strict and (rank is not None or world is not None):
        given, missing = (rank_name, world_name) if world is None else (world_name, rank_name)
        raise InvalidArgument(
            f"the environment has {given}={environ[given]} but no {missing}",
            "one says nothing without the other",
            "make the loader after torch.distributed is initialised (in Lightning: in "
            f"train_dataloader()), start with torchrun, or {_SAY_SO}",
        )
    return None


def _check_variables(running: Coordinates, environ: Mapping[str, str]) -> None:
    """Raises if RANK or WORLD_SIZE is set and contradicts the framework."""
    for name, value in (("RANK", running.rank), ("WORLD_SIZE", running.world_size)):
        declared = _number(environ, name)
        if declared is not None and declared != value:
            raise InvalidArgument(
                f"the environment has {name}={declared} but this process is {running}",
                "one of them is not about this job",
                f"unset {name} if it is left over, or {_SAY_SO}",
            )


def _agreed(candidates: list[Coordinates | None]) -> Coordinates | None:
    known = [candidate for candidate in candidates if candidate is not None]
    for other in known[1:]:
        if other[:2] != known[0][:2]:
            raise InvalidArgument(
                f"this process is {known[0]} and {other}", "only one can be right", _SAY_SO
            )
    return known[0] if known else None


def _checked(rank: int, world_size: int, source: str, found: bool) -> Coordinates:
    if not 0 <= rank < world_size:
        raise InvalidArgument(
            f"rank {rank} of {world_size} ({source}) is none",
            "ranks count from 0 and stay below the world size",
            _SAY_SO,
        )
    return Coordinates(rank, world_size, source, found)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidArgument(
            f"the environment has {name}={text!r}", "a whole number is needed", f"unset {name}"
        )
    return int(text)


def worker_info() -> Any:
    """Torch's description of the DataLoader worker that this process is, else None."""
    data = imported("torch.utils.data")
    return None if data is None else data.get_worker_info()


def refuse_inside_worker(done: str) -> None:
    """Raises `InvalidArgument` in a DataLoader's worker. `done` says how the loader was used."""
    info = worker_info()
    if info is not None:
        raise InvalidArgument(
            f"a loader is {done} in DataLoader worker {info.id} of {info.num_workers}",
            "each worker would deliver all samples of the rank",
            "use larder.torch.IterableDataset, which divides them among workers, or iterate the "
            "loader without a DataLoader: it fetches ahead by itself",
        )
