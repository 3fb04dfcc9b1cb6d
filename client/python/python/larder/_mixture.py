"""Mixtures: several datasets in fixed proportions, as one thing to load from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal

from larder import _arguments, _larder
from larder._dataset import Dataset
from larder._loader import Loads

if TYPE_CHECKING:
    from larder._dataset import TensorSpec

#: When an epoch of a mixture ends; also a number of samples.
Stop = Literal["first", "all"] | int


def mix(
    datasets: Mapping[Dataset, float] | Sequence[tuple[Dataset, float]],
    *,
    seed: int = 0,
    stop: Stop = "first",
) -> Mixture:
    """Mix datasets, each with its weight: ``larder.mix({web: 0.7, code: 0.3})``.

    Every batch has a share of each dataset: its weight divided by the sum of all weights. A
    used-up dataset begins again in another order. The next epoch continues at its position. So the
    counts of how often its samples were drawn differ by one at most, however long a job trains.

    Args:
        datasets: each with its weight, which is above 0. They must have a tensor in common. A
            loader reads those that all have (:attr:`Mixture.tensors`), unless ``tensors`` names
            some of them.
        seed: chooses among the equally even ways to interleave the datasets.
        stop: the end of an epoch: when the ``"first"`` dataset is used up, when ``"all"`` were used
            up, or after a number of samples.

    Raises:
        InvalidArgument: a weight is not above 0, or the datasets have no tensor in common.
    """
    return Mixture(_weighted(datasets), seed, stop)


def _weighted(given: Any) -> tuple[tuple[Dataset, float], ...]:
    """The datasets and their weights, if there are such."""
    wanted, hint = (
        "a dict or list of datasets with weights",
        "say larder.mix([(web, 0.7), (code, 0.3)])",
    )
    pairs = given.items() if isinstance(given, Mapping) else given
    pairs = _arguments.listed("datasets", pairs, wanted, hint)
    if not pairs or not all(map(_is_pair, pairs)):
        raise _arguments.wrong("datasets", given, wanted, hint)

    def checked(number: int, weight: Any) -> float:
        name, least = f"weight {number}", math.ulp(0.0)
        return _arguments.real(name, weight, least, wanted="a number above 0")

    return tuple((dataset, checked(at, weight)) for at, (dataset, weight) in enumerate(pairs))


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], Dataset)


class Mixture(Loads):
    """Several datasets in fixed proportions; made by :func:`larder.mix`.

    For each row of a batch, ``batch.sources`` has the index of its dataset in :attr:`datasets`.
    ``batch.samples`` has the row's index into the dataset from :func:`larder.open`.
    """

    _native: _larder.Mixture

    def __init__(self, weighted: tuple[tuple[Dataset, float], ...], seed: int, stop: Stop) -> None:
        if isinstance(stop, str):
            _arguments.choice("stop", stop, ("first", "all"))
        else:
            stop = _arguments.integer("stop", stop, 1, hint="or say 'first' or 'all'")
        self._weighted = weighted
        self._seed = seed = _arguments.integer("seed", seed)
        self._stop = stop
        native = [(dataset._native, weight) for dataset, weight in weighted]
        self._native = _larder.Mixture(native, seed, stop)

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """The datasets of the mixture."""
        return tuple(dataset for dataset, _ in self._weighted)

    def _data(self) -> _larder.Mixture:
        return self._native

    def _upright(self) -> Set[str]:
        return frozenset.union(*(frozenset(dataset._upright()) for dataset in self.datasets))

    @property
    def draws(self) -> tuple[int, ...]:
        """The number of samples that an epoch draws from each dataset."""
        return tuple(self._native.draws)

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensors that all datasets have."""
        first, *others = (dataset.tensors for dataset in self.datasets)
        return {
            name: spec
            for name, spec in first.items()
            if all(other.get(name) == spec for other in others)
        }

    def __len__(self) -> int:
        """Samples of an epoch."""
        return len(self._native)

    def __reduce__(self) -> tuple[type[Mixture], tuple[object, ...]]:
        return Mixture, (self._weighted, self._seed, self._stop)

    def __repr__(self) -> str:
        parts = ", ".join(f"{dataset!r}: {weight}" for dataset, weight in self._weighted)
        return f"<larder.Mixture of {len(self)} samples an epoch: {parts}>"
