"""Rows that the caller chooses by number, and arrays that the caller gives for them.

Thread rule: pure functions.
Non-goals: reading, and the bounds of each number: the native module checks those.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from larder._errors import InvalidArgument, NotFound
from larder._frameworks import imported

if TYPE_CHECKING:
    from larder._larder import Dataset

#: A list, a range, an array of integers, or a mask of one bool a sample.
Indices: TypeAlias = Any

#: A list or an array of integers, or of texts.
Keys: TypeAlias = Any

_KEYS = "give a list of integers, or a list of texts"

#: The kinds of choices.
_CHOICES = "give a range, indices, or a mask"


def listed(chosen: Indices) -> np.ndarray[Any, Any]:
    """A choice as an array of one dimension: integers of any type, or a mask."""
    if isinstance(chosen, str):
        hint = f"for one tensor of some samples: take([3, 17], tensors=[{chosen!r}])"
        raise InvalidArgument(f"samples can't be chosen by {chosen!r}", hint=hint)
    try:
        array = np.asarray(chosen)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise InvalidArgument("samples can't be chosen by this", why, _CHOICES) from error
    if array.ndim == 1 and not array.size and array.dtype != bool:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise InvalidArgument(
            f"samples can't be chosen by an array of {array.dtype} of shape {array.shape}",
            hint=_CHOICES,
        )
    return array


def chosen_by(mask: np.ndarray[Any, Any], samples: int) -> np.ndarray[Any, Any]:
    """The indices that a mask chooses, ascending."""
    if mask.shape != (samples,):
        raise InvalidArgument(
            f"a mask of shape {mask.shape} does not fit a dataset of {samples} samples",
            hint="a mask has one bool for each sample",
        )
    return np.flatnonzero(mask)


def numbers(native: Dataset, chosen: Indices) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A choice as indices of 64 bits, which may count from the end."""
    if isinstance(chosen, range):
        if not chosen:
            return np.zeros(0, np.int64)
        _check_ends(native, chosen)
        return np.arange(chosen.start, chosen.stop, chosen.step, dtype=np.int64)
    array = listed(chosen)
    if array.dtype == bool:
        array = chosen_by(array, len(native))
    elif array.dtype.kind == "u" and (large := array > np.iinfo(np.int64).max).any():
        place = int(large.argmax())
        native.refuse(str(array[place]), place)
    return np.ascontiguousarray(array, np.int64)


def keys(given: Keys) -> np.ndarray[Any, np.dtype[np.int64 | np.uint64]] | list[bytes]:
    """Keys as integers of 64 bits, or as the bytes of texts."""
    if isinstance(given, str | bytes):
        raise InvalidArgument("keys is one text", hint=f"give a list: keys=[{given!r}]")
    if hasattr(given, "__array__"):
        given = np.asarray(given)
        given = given.tolist() if given.ndim == 1 and given.dtype.kind in "OSU" else given
    elif isinstance(given, Iterable):
        given = list(given)
    try:
        if isinstance(given, list) and all(isinstance(key, str | bytes) for key in given):
            return [key.encode() if isinstance(key, str) else key for key in given]
        array = np.asarray(given)
        if array.dtype.kind == "f" and isinstance(given, list):
            # NumPy makes floats of integers on both sides of 2**63, unless it is told.
            array = np.array([operator.index(key) for key in given], np.uint64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InvalidArgument("these are no keys", str(error).partition("\n")[0], _KEYS) from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"keys can't be an array of {array.dtype} of shape {array.shape}", hint=_KEYS
        )
    return np.ascontiguousarray(array, np.uint64 if array.dtype.kind == "u" else np.int64)


def _check_ends(native: Dataset, chosen: range) -> None:
    """Raises if a range leaves the dataset. Called before an array is made of it."""
    known = range(-len(native), len(native))
    if chosen[0] in known and chosen[-1] in known:
        return
    place = 0
    if chosen[0] in known:
        place = bisect_left(chosen, True, key=lambda index: index not in known)
    native.refuse(str(chosen[place]), place)


def given_bytes(
    native: Dataset, rows: int, tensors: Sequence[str] | None, out: Any
) -> tuple[list[str], list[np.ndarray[Any, np.dtype[np.uint8]]]]:
    """The names of the tensors in ``out``, and the bytes of its arrays, if all of them fit."""
    specs = {name: (dtype, shape) for name, dtype, shape, _ in native.all_tensors}
    if not isinstance(out, Mapping):
        kind = type(out).__name__
        raise InvalidArgument(f"out is a {kind}", hint="give a dict from each tensor to its array")
    wanted = [name for name, *_ in native.tensors] if tensors is None else list(tensors)
    for name in wanted:
        if name not in specs:
            why = native.left_out.get(name)
            why = why and f"the index left it out: it {why}"
            hint = f"its tensors are: {', '.join(specs)}"
            raise NotFound(f"the dataset has no tensor '{name}'", why, hint)
    if set(out) != set(wanted):
        odd = ", ".join(map(repr, sorted(set(wanted) ^ set(out), key=str)))
        raise InvalidArgument(
            f"out has {list(out)} where the tensors are {wanted}",
            f"the difference is {odd}",
            "tensors= names those to read",
        )
    given = [_bytes_of(name, out[name], rows, *specs[name]) for name in wanted]
    _check_apart(wanted, given)
    return wanted, given


def _bytes_of(
    name: str, value: Any, rows: int, dtype: str, shape: Sequence[int | None]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of one array of ``out``."""
    what = f"out[{name!r}]"
    if None in shape:
        raise InvalidArgument(
            f"{what} can't be filled",
            "its rows differ in length, so their size is known only after they are looked up",
            "leave it out of tensors=, and take it without out=",
        )
    torch = imported("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            where = f"it is on {value.device}"
            raise InvalidArgument(f"{what} can't be filled", where, "give memory of the host")
        of, contiguous = str(value.dtype).removeprefix("torch."), value.is_contiguous()
        array = None
    elif isinstance(value, np.ndarray):
        of, contiguous = value.dtype.name, value.flags.c_contiguous
        array = value
        if not value.dtype.isnative:
            of = f"{of} in the other byte order"
        if not value.flags.writeable:
            raise InvalidArgument(f"{what} can't be filled", "it is read-only", "give a copy")
    else:
        kind = type(value).__name__
        hint = "give a numpy array or a torch tensor"
        raise InvalidArgument(f"{what} can't be filled", f"it is a {kind}", hint)
    needed = (rows, *shape)
    if of != dtype or tuple(value.shape) != needed:
        raise InvalidArgument(
            f"{what} is {of} of shape {tuple(value.shape)}",
            f"the rows are {dtype} of shape {needed}",
            f"np.empty({needed}, {dtype!r}) fits",
        )
    if not contiguous:
        hint = "np.ascontiguousarray() makes such an array"
        raise InvalidArgument(f"{what} can't be filled", "its rows are not in C order", hint)
    if array is None:
        array = value.detach().reshape(-1).view(torch.uint8).numpy()
    return array.reshape(-1).view(np.uint8)


def _check_apart(names: Sequence[str], given: Sequence[np.ndarray[Any, Any]]) -> None:
    """Raises if two arrays share memory."""
    filled = [
        (array.ctypes.data, array.nbytes, name) for name, array in zip(names, given, strict=True)
    ]
    filled = sorted(one for one in filled if one[1])
    for (begin, length, name), (after, _, other) in pairwise(filled):
        if begin + length > after:
            raise InvalidArgument(f"out[{name!r}] and out[{other!r}] share memory")
