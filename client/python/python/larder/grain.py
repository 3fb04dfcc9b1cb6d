"""A data source for Grain, the loader of the JAX users.

Thread rule: any number of threads; picklable, also for Grain's worker processes. Never imports
Grain: its protocol is structural.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from larder._by_number import ByNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataSource"]

Sample = dict[str, Any]


class DataSource(ByNumber):
    """A dataset as Grain's ``RandomAccessDataSource``: samples by their number, as numpy arrays.

    ``grain.MapDataset.source(DataSource(ds)).shuffle(seed=0).batch(256)`` shuffles by Grain's own
    order. A read of several samples is one request.

    Args:
        dataset: a dataset from :func:`larder.open`; a mixture raises
            :class:`larder.InvalidArgument`.
        tensors: names of the wanted tensors; by default all.
    """

    _output = "numpy"

    def __getitem__(self, index: int) -> Sample:
        return self._each([index])[0]

    def _getitems(self, indices: Sequence[int]) -> list[Sample]:
        """Several samples by one read. Grain calls this when it batches."""
        return self._each(indices)

    def __repr__(self) -> str:
        """A text that is equal for equal samples: Grain compares it when it resumes."""
        dataset = self._dataset
        part = f", part {dataset._native.view}" if dataset._source.steps else ""
        tensors = "" if self._tensors is None else f", tensors={self._tensors}"
        return f"larder.grain.DataSource({dataset.uri!r}@{dataset.snapshot}{part}{tensors})"
