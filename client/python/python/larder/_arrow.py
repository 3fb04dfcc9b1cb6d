"""The Arrow types of columns, and the batch that exports them without a copy.

Thread rule: pure functions.
Non-goals: the C structures, which the native module makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from larder._errors import InvalidArgument
from larder._frameworks import imported
from larder._larder import ArrowBatch, DeviceTensor
from larder._numpy import as_numpy
from larder._ragged import BYTES, TEXTS, Ragged

#: Arrow's formats of elements. It has no complex numbers, and no bfloat16 or smaller floats: these
#: are bytes of fixed width.
_FORMATS = {
    **{"bool": "b", "int8": "c", "uint8": "C", "int16": "s", "uint16": "S"},
    **{"int32": "i", "uint32": "I", "int64": "l", "uint64": "L"},
    **{"float16": "e", "float32": "f", "float64": "g", "complex64": "w:8", "bfloat16": "w:2"},
    **{f"float8_{kind}": "w:1" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
}

#: Arrow's formats of times, by the meaning and the type of the values.
_TIMES = {
    ("date", "int32"): "tdD",
    **{("time[s]", "int32"): "tts", ("time[ms]", "int32"): "ttm"},
    **{("time[us]", "int64"): "ttu", ("time[ns]", "int64"): "ttn"},
    **{
        (f"{kind}[{unit}]", "int64"): form
        for unit in ("s", "ms", "us", "ns")
        for kind, form in (("timestamp", f"ts{unit[0]}:"), ("duration", f"tD{unit[0]}"))
    },
}

#: Arrow's formats of ragged columns by their meaning, with offsets of 64 bits.
_TEXTS = {**dict.fromkeys(TEXTS, "U"), **dict.fromkeys(BYTES, "Z")}

_LEAVE_OUT = "leave it out: to_arrow() of larder.Samples takes a dict of the others"


class Column(NamedTuple):
    """A column as the native module takes it."""

    name: str
    #: Arrow's format of an element.
    format: str
    #: The name of Arrow's extension type; empty for none.
    extension: str
    #: The sides of one row. Of a ragged column, of an element.
    sides: tuple[int, ...]
    data: np.ndarray[Any, Any]
    offsets: np.ndarray[Any, Any] | None
    #: One byte for each row: whether it has a value.
    valid: np.ndarray[Any, Any] | None


def batch_of(columns: Mapping[str, Any], meanings: Mapping[str, str]) -> ArrowBatch:
    """The columns for consumers of Arrow's data.

    Raises:
        InvalidArgument: a column is on a device, has no type of Arrow, or has other rows.
        ValueError: a row of text is not UTF-8.
    """
    given, masks = [], set()
    for name, value in columns.items():
        mask = f"{name}.valid"
        if mask in columns:
            masks.add(mask)
            valid = _array(mask, columns[mask])
            given.append(_column(name, value, meanings.get(name, ""))._replace(valid=valid))
        else:
            given.append(_column(name, value, meanings.get(name, "")))
    rows = len(next(iter(columns.values()), ()))
    return ArrowBatch(rows, [column for column in given if column.name not in masks])


def _column(name: str, value: Any, meaning: str) -> Column:
    """A column as the native module takes it."""
    if isinstance(value, Ragged):
        array, meaning = _array(name, value.data), value.logical
        offsets = _array(name, value.offsets)
    else:
        array, offsets = _array(name, value), None
        if not array.ndim:
            raise InvalidArgument(f"column {name!r} has one value in all", hint=_LEAVE_OUT)
    kind = None if offsets is None else _TEXTS.get(meaning)
    if kind is None:
        kind = _format(array.dtype, meaning)
        if kind is None:
            what = f"Arrow has no type for column {name!r} of {array.dtype}"
            raise InvalidArgument(what, hint=_LEAVE_OUT)
        if kind.startswith("w:"):  # The buffer protocol has no such types.
            array = array.view(f"V{array.itemsize}")
    extension = "arrow.json" if meaning == "json" else ""
    return Column(name, kind, extension, array.shape[1:], array, offsets, None)


@cache
def _format(dtype: np.dtype[Any], meaning: str) -> str | None:
    return _TIMES.get((meaning, dtype.name)) or _FORMATS.get(dtype.name)


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """A column in memory of the host as numpy sees it, without gaps."""
    array: np.ndarray[Any, Any] = value if isinstance(value, np.ndarray) else _of(name, value)
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else array.copy()


def _of(name: str, value: Any) -> np.ndarray[Any, Any]:
    """A numpy array of any framework's."""
    torch = imported("torch")
    is_tensor = torch is not None and isinstance(value, torch.Tensor)
    if isinstance(value, DeviceTensor) or (is_tensor and value.device.type != "cpu"):
        raise InvalidArgument(
            f"column {name!r} is in the memory of {value.device}",
            "Arrow's data is in the memory of the host",
            "copy the batch there first, or leave device out",
        )
    return as_numpy(value)
