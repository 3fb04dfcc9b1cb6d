"""Rows of different lengths.

Thread rule: values. Non-goals: computing with them, for which frameworks have types of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np


class Ragged(NamedTuple):
    """A column with rows that differ in their first dimension: its rows one after the other.

    A tuple of two arrays, so that frameworks take it apart and put it together as any other:
    ``data, offsets = batch["text"]``. So its ``len()`` is 2; it has ``len(ragged.lengths)`` rows.

    Attributes:
        data: the elements of all rows.
        offsets: row ``r`` is ``data[offsets[r]:offsets[r + 1]]`` (int64): one more than rows.
    """

    data: Any
    offsets: Any

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """These rows, at least one, which may differ in their first dimension: arrays of numpy."""
        arrays = [np.asarray(row) for row in rows]
        ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int64)
        return cls(np.concatenate(arrays), ends)

    @property
    def lengths(self) -> Any:
        """How many elements each row has."""
        return self.offsets[1:] - self.offsets[:-1]

    def row(self, index: int) -> Any:
        """One row: a view of the data."""
        rows = len(self.offsets) - 1
        position = index + rows if index < 0 else index
        if not 0 <= position < rows:
            raise IndexError(f"there is no row {index} of {rows}")
        return self.data[int(self.offsets[position]) : int(self.offsets[position + 1])]

    def rows(self) -> list[Any]:
        """All rows, each a view of the data."""
        offsets = self.offsets.tolist()
        return [self.data[begin:end] for begin, end in pairwise(offsets)]


#: A column of a batch in arrays of numpy.
Column = np.ndarray[Any, Any] | Ragged
Columns = dict[str, Column]
