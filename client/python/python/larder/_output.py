"""Makes arrays of a framework from the native module's arrays, without a copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from larder._errors import InvalidArgument, NotFound
from larder._frameworks import imported
from larder._larder import Array
from larder._ragged import Ragged

Output = Literal["auto", "numpy", "torch", "jax", "device"]

#: Makes a framework's array from one of ours.
Convert = Callable[[Array], Any]


def converter(output: Output) -> Convert:
    """The function that makes arrays of the framework ``output``.

    ``auto`` is torch if the program has imported it, else numpy. So ``auto`` imports nothing.
    """
    convert = _CONVERTERS.get(resolve(output))
    if convert is None:
        raise unknown(output)
    return convert


def unknown(output: object) -> InvalidArgument:
    """The error for an unknown output."""
    return InvalidArgument(
        f"there is no output {output!r}" + (" without a device" if output == "device" else ""),
        hint="say 'auto', 'numpy', 'torch' or 'jax'; with device='cuda' also 'device'",
    )


def resolve(output: Output, *, on_device: bool = False) -> Output:
    """The output, with ``auto`` replaced by the choice for this process."""
    if output == "auto":
        if "torch" in sys.modules:
            return "torch"
        return "device" if on_device else "numpy"
    return output


#: A tensor of the native module: an array, or elements and offsets for a ragged tensor.
Tensor: TypeAlias = Array | tuple[Array, Array]


def convert_all(tensors: Mapping[str, Tensor], convert: Convert) -> dict[str, Any]:
    """Each array converted, under its name."""
    return {
        name: Ragged(*map(convert, tensor)) if isinstance(tensor, tuple) else convert(tensor)
        for name, tensor in tensors.items()
    }


def each_row(columns: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
    """The rows of stacked columns one by one, as views."""
    listed = {
        name: column.rows() if isinstance(column, Ragged) else column
        for name, column in columns.items()
    }
    return [{name: column[row] for name, column in listed.items()} for row in range(rows)]


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """A numpy view of an array. ml_dtypes adds the types that numpy lacks."""
    if array.dtype not in _EXTENSION_DTYPES:
        return np.asarray(array)
    raw: np.ndarray[Any, Any] = np.asarray(array.raw())
    return raw.view(_extension(array.dtype)).reshape(array.shape)


def from_numpy(array: np.ndarray[Any, Any], output: Output) -> Any:
    """A framework's array of a numpy array; for torch it is a view."""
    if output == "torch":
        import torch

        extension = array.dtype.name in _EXTENSION_DTYPES
        if not extension:
            return torch.from_numpy(array)
        bits = array.view(f"uint{8 * array.itemsize}")
        return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    if output == "jax":
        from jax import numpy

        return numpy.asarray(array)
    return array


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A numpy array, in memory of the host, of a number or of any framework's array."""
    torch = None if isinstance(value, np.ndarray) else imported("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _EXTENSION_DTYPES:
        return np.asarray(tensor.numpy())
    bits = tensor.contiguous().view(getattr(torch, f"uint{8 * tensor.element_size()}")).numpy()
    return np.asarray(bits.view(_extension(name)))


def _extension(name: str) -> np.dtype[Any]:
    """A type that ml_dtypes adds to numpy."""
    try:
        import ml_dtypes
    except ImportError:
        raise NotFound(
            f"numpy has no {name} of its own",
            why="the package ml_dtypes, which adds it, is not installed",
            hint="pip install ml_dtypes; a loader without transforms needs it only for numpy",
        ) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def to_torch(array: Array) -> Any:
    """A tensor of torch over an array's memory."""
    from torch.utils import dlpack

    return dlpack.from_dlpack(array)


def _to_jax(array: Array) -> Any:
    from jax import dlpack

    return dlpack.from_dlpack(array)


#: Types that numpy has only with ml_dtypes, under the same names.
_EXTENSION_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz"}
    | {"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)

_CONVERTERS: dict[str, Convert] = {"numpy": to_numpy, "torch": to_torch, "jax": _to_jax}
