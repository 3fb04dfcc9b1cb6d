"""Images: samples of 150,528 bytes and a label; safetensors for Larder, `.npy` for memmap."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np

from contest import Batch, Contender, Subject
from loaders import Larder, Slices, mapped

SHAPE = (224, 224, 3)

#: Samples of a file: 73.5 MiB.
FILE_SAMPLES = 512


def write(folder: Path, samples: int) -> None:
    """Writes noise, so that no two images are alike. A label is the sample's number."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(7)
    (folder / "images").mkdir()
    whole = np.lib.format.open_memmap(
        folder / "image.npy", mode="w+", dtype=np.uint8, shape=(samples, *SHAPE)
    )
    labels = np.arange(samples, dtype=np.int64)
    np.save(folder / "label.npy", labels)
    for start in range(0, samples, FILE_SAMPLES):
        stop = min(start + FILE_SAMPLES, samples)
        image = rng.integers(0, 256, size=(stop - start, *SHAPE), dtype=np.uint8)
        whole[start:stop] = image
        part = folder / "images" / f"part-{start // FILE_SAMPLES:05}.safetensors"
        save_file({"image": image, "label": labels[start:stop]}, part)


def uri(folder: Path) -> str:
    """The URI for Larder."""
    return f"file://{folder}/images"


def columns(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The same data as one mapped array for each column."""
    names = ("image", "label")
    return {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in names}


def subjects(folder: Path, samples: int, node: int) -> list[Subject]:
    """Shuffled epochs, and epochs in order. Their batches are only touched, or read completely."""
    data, compare = partial(columns, folder), partial(check, folder)

    def larder(name: str, shuffle: str) -> Contender:
        return Larder(name, "larder", uri(folder), shuffle, helpers=[node])

    def in_order() -> list[Contender]:
        bound = Slices("slices of the memmap, unmanaged", "bound", data)
        return [*mapped(data, shuffle=False), bound, larder("larder, shuffle none", "none")]

    shuffled = [*mapped(data, shuffle=True), larder("larder, shuffle global", "global")]
    title = f"{samples:,} images of {np.prod(SHAPE):,} B"
    return [
        Subject("shuffled", f"{title}, shuffled", samples, shuffled, touch, compare, 1.5),
        Subject("views", f"{title}, in order", samples, in_order(), touch, compare, 10),
        Subject(
            "views-read",
            f"{title}, in order, every byte read",
            samples,
            in_order(),
            read,
            compare,
            1,
        ),
    ]


def touch(batch: Batch) -> SupportsInt:
    """One byte of each image, and the labels."""
    return batch["image"][:, 0, 0, 0].sum() + batch["label"].sum()


def read(batch: Batch) -> SupportsInt:
    """Every byte."""
    return batch["image"].numpy().reshape(-1).view(np.int64).sum() + batch["label"].sum().item()


def check(folder: Path, batch: Batch) -> int:
    """Compares a batch with the written data. Returns the number of its samples."""
    labels = batch["label"].numpy()
    written = np.load(folder / "image.npy", mmap_mode="r")
    if not np.array_equal(batch["image"].numpy(), written[labels]):
        raise AssertionError("a batch is not what was written")
    return len(labels)
