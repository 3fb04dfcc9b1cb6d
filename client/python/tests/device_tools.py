"""Common parts of the programs that the tests of devices run as children.

Thread rule: as for ``device_programs``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import larder
from cuda_driver import Driver
from device_rows import BATCH, check

#: What loaders have in common; shuffled, all rows of a batch are scattered.
LOADER: dict[str, Any] = {"last": "uneven", "seed": 3}


Program = Callable[..., dict[str, Any]]


def on_device(dataset: larder.Dataset, device: Any = "cuda:0", **options: Any) -> larder.Loader:
    return dataset.loader(BATCH, **{"shuffle": "global", **LOADER, **options}, device=device)


def told(call: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, str] | None:
    """The class and the text of the exception that a call raises."""
    try:
        call(*arguments, **options)
    except Exception as error:
        return {"type": type(error).__name__, "text": str(error)}
    return None


def settled(program: Program) -> Program:
    """A program that gives everything back: its result, and the memory that is left."""

    def run(**arguments: Any) -> dict[str, Any]:
        said = program(**arguments)
        return {**said, "left": Driver().settle()["left"]}

    return run


def checked(loader: larder.Loader) -> list[list[int]]:
    """The samples of an epoch, batch by batch, after every byte of it was compared."""
    samples = []
    for batch in loader:
        check(batch)
        samples.append(batch.samples.tolist())
    return samples


def first(loader: larder.Loader) -> larder.Batch:
    return next(iter(loader))


def copied(loader: larder.Loader) -> larder.Loader:
    return pickle.loads(pickle.dumps(loader))


@contextmanager
def delta() -> Iterator[dict[str, float]]:
    """The growth of the process's counters."""
    before, grown = larder.stats(), {}
    yield grown
    after = larder.stats()
    grown.update({name: after[name] - before[name] for name in after if name.endswith("bytes")})
