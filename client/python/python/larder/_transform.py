"""Transforms: the user's functions, applied to the rows of a batch.

Thread rule: a :class:`Transform` is a value, applied by several threads or processes at once; what
the user's functions share is theirs to guard.
Non-goals: where they run (see ``_pipeline`` and ``_process``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from larder import _random
from larder._errors import InvalidArgument, TransformError
from larder._output import Output, as_numpy, from_numpy

Arrays = dict[str, np.ndarray[Any, Any]]
#: Makes room for columns of these shapes and types.
Allocate = Callable[[dict[str, tuple[tuple[int, ...], np.dtype[Any]]]], Arrays]


class Rows(NamedTuple):
    """The rows of a batch, before they are transformed."""

    columns: Arrays
    #: The number of each row's sample in its dataset.
    samples: np.ndarray[Any, Any]
    #: In a mixture, which dataset each row is of.
    sources: np.ndarray[Any, Any] | None
    #: In a mixture, which pass over its dataset each row belongs to.
    passes: np.ndarray[Any, Any] | None
    seed: int
    epoch: int

    def source(self, row: int) -> int:
        """Which dataset a row is of."""
        return 0 if self.sources is None else int(self.sources[row])

    def draw(self, row: int) -> tuple[int, int, int]:
        """What comes once in the life of a job: dataset, pass over it, sample."""
        number = self.epoch if self.passes is None else int(self.passes[row])
        return self.source(row), number, int(self.samples[row])


def on_the_heap(columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> Arrays:
    """Room for columns in memory of this process."""
    return {name: np.empty(shape, dtype) for name, (shape, dtype) in columns.items()}


@dataclass(frozen=True)
class Transform:
    """What becomes of a batch: a function for each sample, then one for the whole batch."""

    each: Callable[..., Any] | None
    whole: Callable[..., Any] | None
    output: Output

    def __post_init__(self) -> None:
        for name, function in (("transform", self.each), ("batch_transform", self.whole)):
            if not (function is None or callable(function)):
                raise InvalidArgument(f"{name} is {function!r}, which can't be called")

    def apply(self, rows: Rows, allocate: Allocate = on_the_heap) -> dict[str, Any]:
        """The columns that come of it: arrays of numpy, or what ``whole`` returned.

        ``allocate`` makes the room for what ``each`` returns, if that is the last step.
        """
        columns: dict[str, Any] = rows.columns
        if self.each is not None:
            columns = self._each(rows, on_the_heap if self.whole is not None else allocate)
        if self.whole is not None:
            columns = self._whole(rows, columns)
        return columns

    def _each(self, rows: Rows, allocate: Allocate) -> Arrays:
        assert self.each is not None
        streams = _streams(self.each, rows, _random.SAMPLE)
        stacked: Arrays = {}
        for row in range(len(rows.samples)):
            # With an ellipsis, scalars too are arrays that can be written to.
            given = {n: self._as_output(column[row, ...]) for n, column in rows.columns.items()}
            rng = {} if streams is None else {"rng": streams.at(*rows.draw(row))}
            try:
                values = _arrays(self.each(given, **rng))
                if row == 0:
                    count = len(rows.samples)
                    shapes = {n: ((count, *v.shape), v.dtype) for n, v in values.items()}
                    stacked = allocate(shapes)
                _check_alike(values, stacked)
            except Exception as error:
                raise _failed("transform", rows, row) from error
            for name, value in values.items():
                stacked[name][row] = value
        return stacked

    def _whole(self, rows: Rows, columns: Arrays) -> dict[str, Any]:
        assert self.whole is not None
        streams = _streams(self.whole, rows, _random.BATCH)
        rng = {} if streams is None else {"rng": streams.at(*rows.draw(0))}
        given = {name: self._as_output(column) for name, column in columns.items()}
        try:
            return dict(_mapping(self.whole(given, **rng)))
        except Exception as error:
            raise _failed("batch_transform", rows, None) from error

    def _as_output(self, array: np.ndarray[Any, Any]) -> Any:
        # Transforms of rows are no work for JAX, which would compile for each: it gets numpy's.
        return from_numpy(array, "torch") if self.output == "torch" else array


def _streams(function: Callable[..., Any], rows: Rows, use: int) -> _random.Streams | None:
    """Random numbers, if the function has a parameter ``rng``."""
    try:
        takes = "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # Some functions written in C do not tell.
        takes = False
    return _random.Streams(rows.seed, use) if takes else None


def _mapping(result: Any) -> Mapping[str, Any]:
    if not isinstance(result, Mapping):
        raise TypeError(f"it returned a {type(result).__name__} where a dict of arrays is needed")
    return result


def _arrays(result: Any) -> Arrays:
    values = {name: as_numpy(value) for name, value in _mapping(result).items()}
    for name, value in values.items():
        if value.dtype.hasobject:
            kind = type(result[name]).__name__
            raise TypeError(f"{name!r} is a {kind}, which can't be put into an array")
    return values


def _check_alike(values: Arrays, stacked: Arrays) -> None:
    """Rows of a batch have the same columns, each of one shape and type."""
    if values.keys() != stacked.keys():
        first, now = sorted(stacked), sorted(values)
        raise ValueError(f"it returned {now}, and {first} for the first sample of the batch")
    for name, value in values.items():
        column = stacked[name]
        if (value.shape, value.dtype) != (column.shape[1:], column.dtype):
            raise ValueError(
                f"{name!r} is {value.dtype} of shape {value.shape}, and for the first sample of "
                f"the batch it was {column.dtype} of shape {column.shape[1:]}: samples are "
                "stacked, so pad them here, or do this in a batch_transform"
            )


def _failed(which: str, rows: Rows, row: int | None) -> TransformError:
    samples = rows.samples.tolist() if row is None else [int(rows.samples[row])]
    if row is not None:
        of = f"sample {samples[0]}"
    else:
        of = f"the batch of {len(samples)} samples that begins with sample {samples[0]}"
    if rows.sources is not None:
        of += f" of dataset {rows.source(row or 0)} of the mixture"
    error = TransformError(f"the {which} failed on {of} in epoch {rows.epoch}")
    error.samples, error.epoch = samples, rows.epoch
    return error
