"""Samples by their number: a map-style dataset, or a random access source.

Thread rule: any number of threads; picklable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from larder import _arguments
from larder._dataset import Dataset
from larder._errors import InvalidArgument
from larder._output import Output, each_row

if TYPE_CHECKING:
    from collections.abc import Sequence


class ByNumber:
    """The samples of a dataset by their number, as a framework's arrays."""

    #: The framework of the arrays.
    _output: ClassVar[Output]

    def __init__(self, dataset: Dataset, *, tensors: Sequence[str] | None = None) -> None:
        require_numbers(dataset)
        self._dataset = dataset
        self._tensors = _arguments.names("tensors", tensors)

    def __len__(self) -> int:
        return len(self._dataset)

    def _stacked(self, indices: Sequence[int]) -> dict[str, Any]:
        """Several samples by one read, stacked."""
        return self._dataset.take(indices, tensors=self._tensors, output=self._output)

    def _each(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """A list of samples that share the memory of one read."""
        return each_row(self._stacked(indices), len(indices))


def require_numbers(dataset: object) -> None:
    """Raises `InvalidArgument` for a mixture: its samples have no numbers."""
    if not isinstance(dataset, Dataset):
        raise InvalidArgument(
            f"samples can't be read by their number from {dataset!r}",
            "of a mixture there is an order only: which samples come depends on the epoch",
            "use mixture.loader() or larder.torch.IterableDataset, or read its datasets",
        )
