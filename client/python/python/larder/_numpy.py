"""Arrays of numpy made of any framework's.

Thread rule: pure functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from larder._errors import NotFound
from larder._frameworks import imported

#: Types that numpy has only with ml_dtypes, under the same names.
EXTENSION_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz"}
    | {"float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)


def as_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A numpy array, in memory of the host, of a number or of any framework's array."""
    torch = None if isinstance(value, np.ndarray) else imported("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in EXTENSION_DTYPES:
        return np.asarray(tensor.numpy())
    bits = tensor.contiguous().view(getattr(torch, f"uint{8 * tensor.element_size()}")).numpy()
    return np.asarray(bits.view(extension(name)))


def extension(name: str) -> np.dtype[Any]:
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
