"""Images of 150,528 bytes and labels in `.npy` files, which all loaders read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (224, 224, 3)
SAMPLE_BYTES = 150_528
BATCH = 256


def write(folder: Path, samples: int) -> None:
    """Writes noise, so that no two images are alike. A label is the sample's number."""
    noise = np.random.SFC64(7)
    image = np.lib.format.open_memmap(
        folder / "image.npy", mode="w+", dtype=np.uint8, shape=(samples, *SHAPE)
    )
    for start in range(0, samples, BATCH):
        part = image[start : start + BATCH].reshape(-1)
        part[:] = noise.random_raw(-(-part.nbytes // 8)).view(np.uint8)[: part.nbytes]
    np.save(folder / "label.npy", np.arange(samples, dtype=np.int64))


def images(folder: Path) -> np.ndarray[Any, Any]:
    """Maps the written images, by label."""
    mapped: np.ndarray[Any, Any] = np.load(folder / "image.npy", mmap_mode="c")
    return mapped


def uri(folder: Path) -> str:
    """Returns the URI for Larder."""
    return f"file://{folder}"
