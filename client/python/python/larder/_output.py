"""Makes arrays of a framework from the native module's arrays, without a copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from larder._errors import InvalidArgument
from larder._frameworks import register_with_jax
from larder._larder import Array
from larder._numpy import EXTENSION_DTYPES, extension
from larder._ragged import TEXTS, Ragged, text_of
from larder._samples import Samples

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
    alone = isinstance(output, str) and output == "device"
    return InvalidArgument(
        f"there is no output {output!r}" + (" without a device" if alone else ""),
        hint="say 'auto', 'numpy', 'torch' or 'jax'; with device='cuda' also 'device'",
    )


def resolve(output: Output, *, on_device: bool = False) -> Output:
    """The output, with ``auto`` replaced by the choice for this process."""
    if not isinstance(output, str):
        raise unknown(output)
    if output == "auto":
        if "torch" in sys.modules:
            return "torch"
        return "device" if on_device else "numpy"
    return output


def convert_all(
    tensors: Mapping[str, Any],
    convert: Callable[[Any], Any],
    left_out: Mapping[str, str] | None = None,
) -> Samples:
    """The native module's tensors converted, each under its name.

    Each is an array, or a tuple of elements and offsets for a ragged tensor. ``left_out`` are the
    columns that the index left out.
    """
    register_with_jax()
    samples, meanings = Samples(), {}
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            elements, offsets = tensor
            logical = elements.logical
            samples[name] = Ragged(convert(elements), convert(offsets), logical, name)
        else:
            samples[name] = convert(tensor)
            if tensor.logical not in _PLAIN:
                meanings[name] = tensor.logical
    samples._meanings = meanings
    if left_out:
        samples._left_out = left_out
    return samples


def sample_of(tensors: Mapping[str, Array], index: int) -> dict[str, Any]:
    """One sample, in arrays of numpy. Text is text."""

    def value(name: str, array: Array) -> Any:
        if array.logical not in TEXTS or len(array.shape) != 1:
            return to_numpy(array)
        what = f"column {name!r} of sample {index}"
        hint = f"ds.take([{index}])[{name!r}].row(0) has its bytes"
        return text_of(bytes(array), array.logical, what, hint)

    return {name: value(name, array) for name, array in tensors.items()}


def each_row(columns: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
    """The rows of stacked columns one by one: views, and texts."""
    listed = {
        name: list(column) if isinstance(column, Ragged) else column
        for name, column in columns.items()
    }
    return [{name: column[row] for name, column in listed.items()} for row in range(rows)]


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """A numpy view of an array. ml_dtypes adds the types that numpy lacks."""
    if array.dtype not in EXTENSION_DTYPES:
        return np.asarray(array)
    raw: np.ndarray[Any, Any] = np.asarray(array.raw())
    return raw.view(extension(array.dtype)).reshape(array.shape)


def from_numpy(array: np.ndarray[Any, Any], output: Output) -> Any:
    """A framework's array of a numpy array; for torch it is a view."""
    if output == "torch":
        import torch

        extension = array.dtype.name in EXTENSION_DTYPES
        if not extension:
            return torch.from_numpy(array)
        bits = array.view(f"uint{8 * array.itemsize}")
        return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))
    if output == "jax":
        from jax import numpy

        return numpy.asarray(array)
    return array


def to_torch(array: Array) -> Any:
    """A tensor of torch over an array's memory."""
    from torch.utils import dlpack

    return dlpack.from_dlpack(array)


def _to_jax(array: Array) -> Any:
    from jax import dlpack

    return dlpack.from_dlpack(array)


#: Meanings that say no more than the type of the values.
_PLAIN = ("number", "boolean")

_CONVERTERS: dict[str, Convert] = {"numpy": to_numpy, "torch": to_torch, "jax": _to_jax}
