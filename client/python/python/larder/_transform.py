"""Transforms: applies the user's functions to the rows of a batch.

Thread rule: a :class:`Transform` is a value that several threads apply at once. The user's
functions guard the state that they share.
Non-goals: threads (see ``_pipeline``).
"""

from __future__ import annotations

import importlib
import inspect
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from larder import _random
from larder._errors import TransformError
from larder._numpy import as_numpy
from larder._output import Output, from_numpy
from larder._ragged import BYTES, Column, Columns, Ragged, as_row, logical_of

_log = logging.getLogger("larder")


class Rows(NamedTuple):
    """The rows of a batch before the transform."""

    columns: Columns
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

    def standing_in(self, places: list[int]) -> Rows:
        """These rows in place of all: a row may come several times."""

        def pick(array: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
            return None if array is None else array[places]

        samples, sources, passes = self.samples[places], pick(self.sources), pick(self.passes)
        return self._replace(samples=samples, sources=sources, passes=passes)

    def draw(self, row: int) -> tuple[int, int, int]:
        """Names a draw that comes once in the life of a job: dataset, pass over it, sample."""
        number = self.epoch if self.passes is None else int(self.passes[row])
        return self.source(row), number, int(self.samples[row])


class Applied(NamedTuple):
    """The result of a transform."""

    #: Arrays of numpy, or the result of the function for the whole batch.
    values: dict[str, Any]
    #: The rows that the values are of. One that was skipped is replaced by another.
    rows: Rows
    skipped: int


@dataclass(frozen=True)
class Transform:
    """A function for each sample, then a function for the whole batch."""

    each: Callable[..., Any] | None
    whole: Callable[..., Any] | None
    output: Output
    #: Whether a sample is skipped if the function for it raises or returns None.
    skips: bool = False

    def __post_init__(self) -> None:
        if self.each is not None or self.whole is not None:
            # numpy imports this module at its first use. That would be in a worker thread. A child
            # forked during the import would hold the import's lock for ever.
            importlib.import_module("numpy.random")

    def apply(self, rows: Rows) -> Applied:
        """Calls the functions."""
        columns, skipped = rows.columns, 0
        if self.each is not None:
            columns, places = self._each(rows)
            if places is not None:
                skipped = sum(place != row for row, place in enumerate(places))
                rows = rows.standing_in(places)
        values: dict[str, Any] = columns
        if self.whole is not None:
            values = self._whole(rows, columns)
        return Applied(values, rows, skipped)

    def _each(self, rows: Rows) -> tuple[Columns, list[int] | None]:
        """The columns of the results. If rows were skipped, also the row that stands for each."""
        assert self.each is not None
        streams = _streams(self.each, rows, _random.SAMPLE)
        stack = Stack(len(rows.samples), rows.columns)
        good: list[int] = []
        for row in range(len(rows.samples)):
            given = {n: self._as_value(column, row) for n, column in rows.columns.items()}
            rng = {} if streams is None else {"rng": streams.at(*rows.draw(row))}
            try:
                result = self.each(given, **rng)
            except Exception as error:
                if self.skips:
                    _tell_of_skipped(rows, row, f"{type(error).__name__}: {error}")
                    continue
                raise failed("transform", rows, row) from error
            if result is None and self.skips:
                _tell_of_skipped(rows, row, "it returned None")
                continue
            try:
                stack.add(result)
            except Exception as error:
                raise failed("transform", rows, row) from error
            good.append(row)
        count = len(rows.samples)
        if len(good) == count:
            return stack.columns(), None
        if not good:
            why = "bad='skip' has skipped each of them: leave it out to be told why"
            raise failed("transform", rows, None, why)
        # As for samples that can't be decoded: the next good one of the batch, or the first.
        standing = [bisect_left(good, row) % len(good) for row in range(count)]
        return stack.columns(standing), [good[place] for place in standing]

    def _whole(self, rows: Rows, columns: Columns) -> dict[str, Any]:
        assert self.whole is not None
        streams = _streams(self.whole, rows, _random.BATCH)
        rng = {} if streams is None else {"rng": streams.at(*rows.draw(0))}
        given = {name: self._as_column(column) for name, column in columns.items()}
        try:
            return dict(_mapping(self.whole(given, **rng), "a dict, of anything,"))
        except Exception as error:
            raise failed("batch_transform", rows, None) from error

    def as_output(self, values: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
        """The result of :meth:`apply`, with numpy arrays converted to the output's arrays.

        Other values stay as they are.
        """
        done = {}
        for name, value in values.items():
            try:
                done[name] = _converted(value, self.output)
            except Exception as error:
                raise self._unfit(name, value, rows) from error
        return done

    def _unfit(self, name: str, value: Any, rows: Rows) -> TransformError:
        """The error for an array that the output can't represent."""
        last = self.whole is not None
        which, row = ("batch_transform", None) if last else ("transform", 0)
        instead = "return numbers or a list" if last else "return numbers"
        array = value.data if isinstance(value, Ragged) else value
        return failed(
            which,
            rows,
            row,
            f"{name!r} is {array.dtype} of shape {array.shape}, which {self.output} can't have",
            f"{instead}, or say output='numpy'",
        )

    def _as_column(self, column: Any) -> Any:
        if isinstance(column, Ragged):
            return column._with(self._as_output(column.data), self._as_output(column.offsets))
        return self._as_output(column)

    def _as_value(self, column: Column, row: int) -> Any:
        """A row for ``each``: text as a ``str``, else an array."""
        # With an ellipsis, scalars too are writable arrays.
        value = column[row] if isinstance(column, Ragged) else column[row, ...]
        return value if isinstance(value, str) else self._as_output(value)

    def _as_output(self, array: np.ndarray[Any, Any]) -> Any:
        # JAX would compile for each row, so transforms get numpy arrays for JAX's output too.
        return from_numpy(array, "torch") if self.output == "torch" else array


def _converted(value: Any, output: Output) -> Any:
    if isinstance(value, Ragged):
        return value._with(_converted(value.data, output), _converted(value.offsets, output))
    return from_numpy(value, output) if isinstance(value, np.ndarray) else value


def _tell_of_skipped(rows: Rows, row: int, why: str) -> None:
    """Logs why a sample is skipped, for a program that shows the log of ``larder``."""
    _log.info(f"the transform skips sample {int(rows.samples[row])} in epoch {rows.epoch}: {why}")


def _streams(function: Callable[..., Any], rows: Rows, use: int) -> _random.Streams | None:
    """Random numbers, if the function has a parameter ``rng``."""
    try:
        takes = "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # Some functions written in C have no signature.
        takes = False
    return _random.Streams(rows.seed, use) if takes else None


def _mapping(result: Any, wanted: str) -> Mapping[str, Any]:
    if not isinstance(result, Mapping):
        raise TypeError(f"it returned a {type(result).__name__} where {wanted} is needed")
    return result


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    array = as_numpy(value)
    if array.dtype.hasobject:
        raise TypeError(f"{name!r} is a {type(value).__name__}, which can't be put into an array")
    return array


class Stack:
    """Collects the results of a function for each sample of a batch as columns.

    Rows are stacked, so they must have one shape. Two kinds of rows may differ in their first
    dimension, and become a :class:`Ragged`: rows under the name of a ragged column, and texts,
    bytes and rows returned as a :class:`Ragged` of one row.
    """

    def __init__(self, count: int, given: Columns) -> None:
        """``given`` are the columns of the samples."""
        self._count = count
        self._ragged = {n: of.logical for n, of in given.items() if isinstance(of, Ragged)}
        self._logical: dict[str, str] = {}
        self._done = 0
        #: The names of the columns, in their order.
        self._order: list[str] = []
        self._stacked: dict[str, np.ndarray[Any, Any]] = {}
        self._rows: dict[str, list[np.ndarray[Any, Any]]] = {}

    def add(self, result: Any) -> None:
        """Adds the result for the next sample."""
        values = dict(_mapping(result, "a dict of arrays"))
        arrays = {n: _array(n, v) for n, v in values.items() if not self._is_ragged(n, v)}
        rows = {n: _ragged_row(n, v) for n, v in values.items() if n not in arrays}
        if self._done == 0:
            self._order = list(values)
            self._rows = {name: [] for name in rows}
            self._logical = {name: self._meaning(name, values[name]) for name in rows}
            self._stacked = {
                name: np.empty((self._count, *array.shape), array.dtype)
                for name, array in arrays.items()
            }
        self._check_alike(arrays, rows)
        for name in rows:
            meaning = self._meaning(name, values[name])
            if meaning != (first := self._logical[name]):
                raise ValueError(
                    f"{name!r} is {meaning}, and for the first sample of the batch it was {first}"
                )
        for name, array in arrays.items():
            self._stacked[name][self._done] = array
        for name, row in rows.items():
            # A copy, because the function may reuse its memory for the next sample.
            self._rows[name].append(row.copy())
        self._done += 1

    def columns(self, places: list[int] | None = None) -> Columns:
        """The columns of all samples. ``places`` has for each row the result that stands for it."""
        columns: Columns = {}
        for name in self._order:
            if name in self._stacked:
                stacked = self._stacked[name]
                columns[name] = stacked if places is None else stacked[places]
            else:
                rows = self._rows[name]
                column = Ragged.of(rows if places is None else [rows[place] for place in places])
                column.logical, column.name = self._logical[name], name
                columns[name] = column
        return columns

    def _is_ragged(self, name: str, value: Any) -> bool:
        return name in self._ragged or isinstance(value, Ragged | str | bytes)

    def _meaning(self, name: str, value: Any) -> str:
        """The logical type of a row of a ragged column."""
        if isinstance(value, Ragged):
            return value.logical
        given = self._ragged.get(name, "number")
        is_of_bytes = given in BYTES and str(getattr(value, "dtype", "")).endswith("uint8")
        if isinstance(value, bytes):
            return given if given in BYTES else "bytes"
        return given if is_of_bytes else logical_of(value)

    def _check_alike(self, arrays: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
        """Raises unless the rows of a batch have the same columns, each of one shape and type."""
        if arrays.keys() | rows.keys() != set(self._order):
            names, now = sorted(self._order), sorted([*arrays, *rows])
            raise ValueError(f"it returned {now}, and {names} for the first sample of the batch")
        for name, array in arrays.items():
            column = self._stacked.get(name)
            if column is None:
                raise ValueError(f"{name!r} was a larder.Ragged for the first sample of the batch")
            if (array.shape, array.dtype) != (column.shape[1:], column.dtype):
                raise ValueError(
                    f"{name!r} is {array.dtype} of shape {array.shape}, and for the first sample "
                    f"of the batch it was {column.dtype} of shape {column.shape[1:]}: samples are "
                    "stacked, so pad them here, return larder.Ragged.of([value]) if they are to "
                    "differ in length, or do this in a batch_transform"
                )
        for name, row in rows.items():
            if name not in self._rows:
                raise ValueError(f"{name!r} was no larder.Ragged for the first sample of the batch")
            first = self._rows[name][0] if self._rows[name] else row
            if (row.shape[1:], row.dtype) != (first.shape[1:], first.dtype):
                raise ValueError(
                    f"{name!r} is {row.dtype} of shape {row.shape}, and for the first sample "
                    f"of the batch it was {first.dtype} of shape {first.shape}: rows of a "
                    "ragged column differ in their first dimension only"
                )


def _ragged_row(name: str, value: Any) -> np.ndarray[Any, Any]:
    """A row that may have any length."""
    if isinstance(value, Ragged):
        if len(value.offsets) != 2:
            raise ValueError(
                f"{name!r} is a larder.Ragged of {len(value.offsets) - 1} rows, and each "
                "sample has one"
            )
        value = value.row(0)
    row = as_row(value) if isinstance(value, str | bytes) else _array(name, value)
    if row.ndim == 0:
        raise ValueError(
            f"{name!r} is a scalar, and rows of a ragged column have a first dimension"
        )
    return row


def failed(
    which: str, rows: Rows, row: int | None, why: str | None = None, hint: str | None = None
) -> TransformError:
    """The error for the function ``which``, on a row of a batch or on the whole batch."""
    samples = rows.samples.tolist() if row is None else [int(rows.samples[row])]
    if row is not None:
        of = f"sample {samples[0]}"
    else:
        of = f"the batch of {len(samples)} samples that begins with sample {samples[0]}"
    if rows.sources is not None:
        of += f" of dataset {rows.source(row or 0)} of the mixture"
    error = TransformError(f"the {which} failed on {of} in epoch {rows.epoch}", why, hint)
    error.samples, error.epoch = samples, rows.epoch
    return error
