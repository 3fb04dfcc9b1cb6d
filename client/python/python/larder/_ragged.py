"""Rows of different lengths.

Thread rule: values. Non-goals: computing with such rows. Frameworks have types of their own for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np


class Ragged(NamedTuple):
    """A column with rows that differ in their first dimension, one row after the other.

    It is a tuple of two arrays, which frameworks can take apart and rebuild:
    ``data, offsets = batch["text"]``. So its ``len()`` is 2. It has ``len(ragged.lengths)`` rows.

    Attributes:
        data: the elements of all rows, ``[offsets[-1], ...]``.
        offsets: int64, one more than rows. Row ``r`` is ``data[offsets[r]:offsets[r + 1]]``.
    """

    data: Any
    offsets: Any

    @classmethod
    def of(cls, rows: Iterable[Any]) -> Self:
        """A column of these rows, in numpy arrays. There must be at least one row.

        Rows may differ in their first dimension only.
        """
        arrays = [np.asarray(row) for row in rows]
        ends = np.cumsum([0, *(len(array) for array in arrays)], dtype=np.int64)
        return cls(np.concatenate(arrays), ends)

    @property
    def lengths(self) -> Any:
        """The number of elements of each row: int64, one for each row."""
        return self.offsets[1:] - self.offsets[:-1]

    def row(self, index: int) -> Any:
        """One row, a view of the data; a negative index counts from the end.

        Raises:
            IndexError: there is no such row.
        """
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
