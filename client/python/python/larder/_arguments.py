"""Checks the arguments of users.

An error names the argument, its value and the values that are allowed.

Thread rule: pure functions.
Non-goals: facts that only the native module knows, such as the names of tensors.
"""

from __future__ import annotations

import math
import operator
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

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

#: Characters that no text for the native module has: NUL, and halves of UTF-16 pairs.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def wrong(name: str, value: object, wanted: str, hint: str | None = None) -> InvalidArgument:
    """Returns the error for a wrong argument."""
    what = f"{name} is {reprlib.repr(value)}"
    if hint is None:
        return InvalidArgument(what, hint=f"give {wanted}")
    return InvalidArgument(what, f"{wanted} is needed", hint)


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


def real(
    name: str,
    value: Any,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    wanted: str = "a finite number",
    hint: str | None = None,
) -> float:
    """A finite number of any type in these bounds; `True`, `False` and text are refused."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        raise wrong(name, value, wanted, hint)
    return number


def flag(name: str, value: Any) -> bool:
    """True or False, also of numpy."""
    if not isinstance(value, bool | np.bool_):
        raise wrong(name, value, "True or False")
    return bool(value)


def function(name: str, value: T) -> T:
    """A function, or another value that can be called."""
    if not callable(value):
        raise wrong(name, value, "a function")
    return value


def row(value: Any) -> int:
    """The number of a row, which may count from the end."""
    try:
        return operator.index(value)
    except TypeError:
        raise wrong("the number of a row", value, "a whole number, or a slice") from None


def ends(value: slice, length: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of so many rows."""
    try:
        return value.indices(length)
    except (TypeError, ValueError):
        wanted = "whole numbers, and a step that is not 0"
        raise wrong("the slice", value, wanted) from None


def dtype(name: str, value: Any) -> str:
    """The name of an element's type: as text, or a type of numpy or torch."""
    if isinstance(value, str):
        return text(name, value, "a type such as 'uint16'")
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    try:
        return str(np.dtype(value).name)
    except TypeError:
        raise wrong(name, value, "a type such as 'uint16' or numpy.uint16") from None


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and _NO_TEXT.search(value) is None


def text(name: str, value: Any, wanted: str) -> str:
    """A string that the native module can be told."""
    if not _is_text(value):
        raise wrong(name, value, wanted)
    return value


def choice(name: str, value: Any, choices: Sequence[str | bool]) -> Any:
    """One of the words in `choices`, which may also have `True` and `False`."""
    if not (isinstance(value, str | bool) and value in choices):
        *most, last = map(repr, choices)
        raise wrong(name, value, f"{', '.join(most)} or {last}")
    return value


def write(value: Any) -> Any:
    """A policy of writing, or `None` for that of the process."""
    return None if value is None else choice("write", value, ("auto", "never"))


def names(name: str, value: Iterable[str] | None) -> list[str] | None:
    """Names of tensors, or `None` for all of them."""
    if value is None:
        return None
    if isinstance(value, str):
        raise wrong(name, value, "a list of names", f"give a list: {name}=[{value!r}]")
    return texts(name, value, "a list of names", "ds.tensors has the names that there are")


def listed(name: str, value: Any, wanted: str, hint: str | None = None) -> list[Any]:
    """The items of a list or of another collection that is no text."""
    try:
        if not isinstance(value, str | bytes):
            return list(value)
    except TypeError:
        pass
    raise wrong(name, value, wanted, hint)


def of_length(name: str, value: Any, length: int, wanted: str) -> list[Any]:
    """The items of a collection of this length."""
    items = listed(name, value, wanted)
    if len(items) != length:
        raise wrong(name, value, wanted)
    return items


def texts(name: str, value: Any, wanted: str, hint: str | None = None) -> list[str]:
    """One text, or several."""
    several = [value] if isinstance(value, str) else listed(name, value, wanted, hint)
    if not all(map(_is_text, several)):
        raise wrong(name, value, wanted, hint)
    return several


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
    return [] if value is None else texts(name, value, "a pattern, or a list of patterns")


def optional(check: Callable[..., T], name: str, value: Any, *wanted: Any) -> T | None:
    """Returns the result of `check`, or `None` for an argument that was left out."""
    return None if value is None else check(name, value, *wanted)


def state(value: Any) -> str:
    """Returns the text of a saved state."""
    saved = value.get("larder") if isinstance(value, Mapping) else None
    if not _is_text(saved):
        raise no_state(value)
    return saved


def no_state(value: object) -> InvalidArgument:
    """Returns the error for a value that ``state_dict()`` did not return."""
    what = f"{reprlib.repr(value)} is no state of a loader"
    return InvalidArgument(what, hint="pass what state_dict() returned")
