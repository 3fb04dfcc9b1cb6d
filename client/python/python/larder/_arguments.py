"""Checks the arguments of users.

An error names the argument, its value and the values that are allowed.

Thread rule: pure functions.
Non-goals: facts that only the native module knows, such as the names of tensors.
"""

from __future__ import annotations

import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from larder._errors import InvalidArgument

T = TypeVar("T")

#: The most that the native module can be told: seeds, epochs and counts.
COUNT_MAX = 2**64 - 1
#: Samples of a batch on a rank, and batches fetched ahead: limits of the native module.
BATCH_SIZE_MAX = 65_536
PREFETCH_MAX = 64
#: Indices that one selection may name, also a limit of the native module.
SELECTION_INDICES_MAX = 1 << 26


def wrong(name: str, value: object, wanted: str, hint: str | None = None) -> InvalidArgument:
    """Returns the error for a wrong argument."""
    return InvalidArgument(f"{name} is {reprlib.repr(value)}", f"{wanted} is needed", hint)


def integer(
    name: str, value: Any, least: int = 0, most: int = COUNT_MAX, *, hint: str | None = None
) -> int:
    """A whole number of any integer type; `True` and `False` are refused."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise wrong(name, value, f"a whole number from {least:,} to {most:,}", hint)
    return number


def dtype(name: str, value: Any) -> str:
    """The name of an element's type: as text, or a type of numpy or torch."""
    if isinstance(value, str):
        return value
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    try:
        return str(np.dtype(value).name)
    except TypeError:
        raise wrong(name, value, "a type such as 'uint16' or numpy.uint16") from None


def text(name: str, value: Any, wanted: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong(name, value, wanted)
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """One of the words in `choices`."""
    if not (isinstance(value, str) and value in choices):
        *most, last = map(repr, choices)
        raise wrong(name, value, f"{', '.join(most)} or {last}")
    return value


def names(name: str, value: Iterable[str] | None) -> list[str] | None:
    """Names of tensors, or `None` for all of them."""
    if value is None:
        return None
    if isinstance(value, str):
        raise wrong(name, value, "a list of names", f"give a list: {name}=[{value!r}]")
    listed = list(value) if isinstance(value, Iterable) else [value]
    if not isinstance(value, Iterable) or not all(isinstance(one, str) for one in listed):
        raise wrong(name, value, "a list of names", "ds.tensors has the names that there are")
    return listed


def address(name: str, value: str | os.PathLike[str]) -> str:
    """The address of a dataset. A path becomes text: the native module refuses it with a hint."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    return text(name, path, "the address of a dataset")


def addresses(name: str, value: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """One address of a dataset, or a list of them."""
    if isinstance(value, str | os.PathLike):
        return [address(name, value)]
    if not isinstance(value, Sequence) or not value:
        raise wrong(name, value, "the address of a dataset, or a list of addresses")
    return [address(name, one) for one in value]


def patterns(name: str, value: str | Sequence[str] | None) -> list[str]:
    """Patterns for names of files: one, several or none."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise wrong(name, value, "a pattern, or a list of patterns")
    return list(value)


def optional(check: Callable[..., T], name: str, value: Any, *wanted: Any) -> T | None:
    """Returns the result of `check`, or `None` for an argument that was left out."""
    return None if value is None else check(name, value, *wanted)


def state(value: Any) -> str:
    """Returns the text of a saved state."""
    saved = value.get("larder") if isinstance(value, Mapping) else None
    if not isinstance(saved, str):
        raise no_state(value)
    return saved


def no_state(value: object) -> InvalidArgument:
    """Returns the error for a value that ``state_dict()`` did not return."""
    what = f"{reprlib.repr(value)} is no state of a loader"
    return InvalidArgument(what, hint="pass what state_dict() returned")
