"""Samples stacked by column: the result of a read, and the base of a batch.

Thread rule: values, as dicts are.
Non-goals: reading. The types of Arrow are in ``_arrow``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from larder import _arrow, _frameworks
from larder._ragged import Ragged, described

if TYPE_CHECKING:
    from larder._larder import ArrowBatch


class Samples(dict[str, Any]):
    """Several samples: a dict from each tensor's name to its array, with one row for each sample.

    Rows that differ in length are a :class:`larder.Ragged`.
    """

    #: The meaning of columns of fixed shape, where it is more than that of their type.
    _meanings: Mapping[str, str] = MappingProxyType({})

    #: The columns that the index left out, each with the reason.
    _left_out: Mapping[str, str] = MappingProxyType({})

    def __missing__(self, name: object) -> NoReturn:
        """Raises a `KeyError` that names the columns, or why the index left this one out."""
        why = self._left_out.get(name) if isinstance(name, str) else None
        if why is not None:
            raise KeyError(f"{name!r} was left out by the index: it {why}")
        raise KeyError(f"there is no column {name!r}; the columns are {', '.join(self)}")

    def to_arrow(self) -> ArrowBatch:
        """The samples for pyarrow, polars, pandas, DuckDB and others that take Arrow's data.

        ``pyarrow.record_batch(samples.to_arrow())`` and ``polars.from_arrow(samples.to_arrow())``
        read the same memory: it is not copied, and may not be written to meanwhile. Text, times and
        dates keep their meaning. A mask ``x.valid`` becomes the nulls of ``x``. Arrow packs masks
        and booleans as bits, so these are copied, one bit for each row.

        Raises:
            InvalidArgument: a column is on a device, or Arrow has no type for it.
            ValueError: a row of text is not UTF-8.
        """
        return _arrow.batch_of(self, self._meanings)

    def _table(self) -> str:
        """A line for each column."""
        width = max(map(len, self), default=0)
        lines = (
            f"\n  {name:<{width}}  {_shown(value, self._meanings.get(name))}"
            for name, value in self.items()
        )
        return "".join(lines)

    def __repr__(self) -> str:
        """The type and shape of each array; of text, the first rows."""
        return f"<larder.Samples:{self._table()}>"


def _shown(value: Any, meaning: str | None) -> str:
    if isinstance(value, Ragged):
        return described(value)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return type(value).__name__
    of = str(dtype).removeprefix("torch.")
    return f"{of if meaning is None else f'{meaning} ({of})'} {[*shape]}"


def _rebuilt(kind: type[Samples]) -> Any:
    """How JAX rebuilds samples. They lose the facts of a batch."""

    def rebuild(facts: Any, arrays: Any) -> Samples:
        names, meanings = facts
        samples = kind(zip(names, arrays, strict=True))
        samples._meanings = dict(meanings)
        return samples

    return rebuild


def _apart(samples: Samples) -> Any:
    return tuple(samples.values()), (tuple(samples), tuple(samples._meanings.items()))


def register(kind: type[Samples]) -> type[Samples]:
    """Makes the class a node of JAX's trees, where JAX is imported."""
    _frameworks.jax_nodes.append((kind, _apart, _rebuilt(kind)))
    return kind


register(Samples)
