"""Photographs in tars. Their JPEG files are crops of the two photographs of scikit-learn."""

from __future__ import annotations

import importlib.util
import io
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

#: Width and height of a picture: those that most of ImageNet has.
SIZE = (500, 375)

QUALITY = 90

#: Samples of a tar: 12 MB or so.
TAR_SAMPLES = 256

#: The file with all JPEG files one after the other, to compare batches with.
WHOLE = "jpegs"


def write(folder: Path, samples: int) -> None:
    """Writes the tars into `folder/tars`, by WebDataset's own writer. A class is a number."""
    from webdataset import ShardWriter

    (folder / "tars").mkdir()
    ends = [0]
    with (
        ProcessPoolExecutor() as pool,
        (folder / WHOLE).open("wb") as whole,
        ShardWriter(
            str(folder / "tars/%05d.tar"), maxcount=TAR_SAMPLES, maxsize=1e12, verbose=0
        ) as tars,
    ):
        for number, jpeg in enumerate(pool.map(_jpeg, range(samples), chunksize=32)):
            tars.write({"__key__": f"{number:08}", "jpg": jpeg, "cls": str(number).encode()})
            whole.write(jpeg)
            ends.append(whole.tell())
    np.save(folder / "ends.npy", ends)


class Written:
    """The written JPEG files."""

    def __init__(self, folder: Path) -> None:
        self._whole = np.memmap(folder / WHOLE, np.uint8, mode="r")
        self._ends = np.load(folder / "ends.npy")

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return len(self._whole)

    def __getitem__(self, number: int) -> bytes:
        return self._whole[self._ends[number] : self._ends[number + 1]].tobytes()


def _jpeg(number: int) -> bytes:
    """A crop of a photograph, at times mirrored, and brighter or darker."""
    rng = np.random.default_rng(number)
    photograph = _photographs()[number % 2]
    left, top = (int(rng.integers(0, have - want + 1)) for have, want in zip(photograph.size, SIZE))
    crop = photograph.crop((left, top, left + SIZE[0], top + SIZE[1]))
    if rng.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    light = rng.uniform(0.8, 1.1)
    out = io.BytesIO()
    crop.point(lambda value: min(255, int(value * light))).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def _photographs() -> list[Image.Image]:
    # Only its files are wanted, so the package is not imported.
    found = importlib.util.find_spec("sklearn")
    assert found is not None and found.origin is not None, "scikit-learn is not installed"
    images = Path(found.origin).parent / "datasets/images"
    return [Image.open(images / name).convert("RGB") for name in ("china.jpg", "flower.jpg")]
