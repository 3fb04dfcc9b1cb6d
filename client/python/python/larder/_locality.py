"""Agrees on one locality among all ranks of a job. They divide their global batches by it.

One process makes the locality and sends it to all. Two processes learn of a change of the cluster
at different times, and ranks that divide a batch differently lose some rows and repeat others.

Thread rule: a function that uses torch.distributed is collective: every rank calls it, at the same
place of its program. Never imports torch: a framework that is not imported has no ranks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from larder._arguments import wrong
from larder._errors import Error, InvalidArgument
from larder._frameworks import imported
from larder._larder import Locality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from larder._distributed import Coordinates

_BY_HAND = (
    "make one in one process by dataset.locality(hosts), send it to all ranks (it pickles), and "
    "pass it as locality="
)


class Placed(Protocol):
    """Data that is placed on the nodes of a cluster."""

    @property
    def nodes_here(self) -> list[str]: ...
    def locality(self, hosts: Sequence[str | Sequence[str]]) -> Locality: ...


def agreed(
    wanted: Locality | bool, placed: Placed, coordinates: Coordinates, group: Any
) -> Locality | None:
    """The locality of this rank's batches: the same on all ranks, or an error on all of them."""
    if not isinstance(wanted, bool | Locality):
        raise wrong("locality", wanted, "True, False or a larder.Locality")
    if wanted is False:
        return None
    exchange = Exchange.among(coordinates, group)
    if wanted is not True:
        if exchange is not None:
            _compare(exchange.all(wanted.id))
        return wanted
    if coordinates.world_size == 1:
        return None
    if exchange is None:
        raise InvalidArgument(
            f"locality=True is not possible for {coordinates}",
            "ranks agree on a locality by torch.distributed",
            f"initialise that before, or {_BY_HAND}",
        )
    if not exchange.is_whole:
        raise InvalidArgument(
            f"locality=True is not possible for {coordinates}",
            "there are processes beside this group, which may be replicas of some in it and must "
            "get the same batches",
            f"pass the mesh of all processes as group=, or {_BY_HAND}",
        )
    return _made_by_first(exchange, placed, coordinates)


def _made_by_first(exchange: Exchange, placed: Placed, coordinates: Coordinates) -> Locality:
    """The locality that the first process makes from the hosts of all processes."""
    # Replicas have the same rank. The first of them counts.
    hosts: dict[int, list[str]] = {}
    for rank, nodes in exchange.all((coordinates.rank, placed.nodes_here)):
        hosts.setdefault(rank, nodes)
    made: Locality | Error | None = None
    if exchange.is_first:
        try:
            made = placed.locality([hosts[rank] for rank in range(coordinates.world_size)])
        except Error as error:
            made = error
    made = exchange.from_first(made)
    if isinstance(made, Error):
        raise made
    assert made is not None, "the first process made one or says why not"
    return made


def _compare(ids: list[str]) -> None:
    differing = [rank for rank, other in enumerate(ids) if other != ids[0]]
    if differing:
        raise InvalidArgument(
            f"process {differing[0]} divides batches by locality {ids[differing[0]]}, process 0 by "
            f"{ids[0]}",
            f"{len(differing)} of {len(ids)} processes differ, and rows would be lost and repeated",
            _BY_HAND,
        )


class Exchange:
    """Values that the processes of a job exchange by torch.distributed."""

    def __init__(self, distributed: Any, groups: Sequence[Any]) -> None:
        self._distributed = distributed
        #: A group for each dimension of a mesh; together they connect all processes.
        self._groups = groups

    @classmethod
    def among(cls, coordinates: Coordinates, group: Any) -> Exchange | None:
        """The exchange among the processes that divide the data, if torch.distributed has them."""
        distributed = imported("torch.distributed")
        if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
            return None
        if group is None:
            found = (distributed.get_rank(), distributed.get_world_size())
            return cls(distributed, [distributed.group.WORLD]) if found == coordinates[:2] else None
        if isinstance(group, distributed.ProcessGroup):
            return cls(distributed, [group])
        return cls(distributed, [group.get_group(number) for number in range(group.ndim)])

    @property
    def is_whole(self) -> bool:
        """Whether all processes of the job are in it."""
        sizes = [self._distributed.get_world_size(group) for group in self._groups]
        return bool(math.prod(sizes) == self._distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process is the first in all dimensions."""
        return all(self._distributed.get_rank(group) == 0 for group in self._groups)

    def all(self, value: Any) -> list[Any]:
        """The values of all processes, in one order for all of them."""
        values = [value]
        # Along the last dimension first: the order is then row-major.
        for group in reversed(self._groups):
            gathered: list[Any] = [None] * self._distributed.get_world_size(group)
            self._distributed.all_gather_object(gathered, values, group=group)
            values = [value for some in gathered for value in some]
        return values

    def from_first(self, value: Any) -> Any:
        """The value of the first process."""
        # Along each dimension in turn, the first process of each group sends to the others.
        for group in self._groups:
            values = [value]
            first = self._distributed.get_global_rank(group, 0)
            self._distributed.broadcast_object_list(values, src=first, group=group)
            value = values[0]
        return value
