"""Loaders of members of tars: as they are, or decoded and cropped to 224 x 224.

WebDataset reads local files, which the page cache holds. All loaders shuffle: Larder over all
samples, WebDataset over tars and a buffer, DALI over a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, SupportsInt

import numpy as np

from contest import Batch, Contender, Subject
from formats.photos import Written
from loaders import BATCH, Larder

#: Height and width of a decoded picture.
SIDE = 224

#: A batch without members.
NO_MEMBERS: list[bytes] = []

#: Samples that WebDataset and DALI shuffle among each other.
BUFFER = 1024


def encoded(folder: Path, samples: int, node: int) -> Subject:
    """Members as they are."""
    contenders: list[Contender] = [
        WebDataset(
            f"WebDataset, {workers} workers",
            "baseline",
            folder / "tars",
            workers,
            "bytes",
        )
        for workers in (0, 2)
    ]
    contenders.append(_larder(folder, node, output="numpy"))
    title = f"{samples:,} JPEG files as they are, warm"
    check = partial(compare, folder)
    return Subject("encoded", title, samples, contenders, count, check, 4)


def decoded(folder: Path, samples: int, node: int) -> Subject:
    """Random crops, scaled to 224 x 224, at times mirrored."""
    import larder

    contenders: list[Contender] = [
        WebDataset(f"WebDataset, {how}, {workers} workers", how, folder / "tars", workers, how)
        for how in ("PIL", "torchvision")
        for workers in (0, 2)
    ]
    contenders.append(Dali("DALI on CPUs", "DALI", folder / "tars"))
    image = larder.Image(SIDE, crop="random", flip=True)
    contenders.append(_larder(folder, node, output="torch", decode={"jpg": image}))
    title = f"{samples:,} JPEG files, decoded and cropped to {SIDE}, warm"
    return Subject("decoded", title, samples, contenders, _labels, _is_in_shape, 1)


def uri(folder: Path) -> str:
    """The URI of the tars for Larder."""
    return f"file://{folder}/tars"


def _larder(folder: Path, node: int, **how: Any) -> Larder:
    return Larder("larder", "larder", uri(folder), "global", how=how, helpers=[node])


@dataclass
class WebDataset(Contender):
    """The pipeline of its documentation.

    Attributes:
        tars: the folder of the tars.
        workers: workers of its DataLoader; 0 is the training process itself.
        how: `bytes` for members as they are, else the decoder, `PIL` or `torchvision`.
    """

    tars: Path
    workers: int
    how: str

    def load(self) -> None:
        import webdataset  # noqa: F401

    def open(self) -> None:
        import torch
        import webdataset

        torch.set_num_threads(1)
        urls = sorted(map(str, self.tars.glob("*.tar")))
        samples = webdataset.WebDataset(
            urls, shardshuffle=len(urls), workersplitter=webdataset.split_by_worker
        ).shuffle(BUFFER)
        samples = {"bytes": _bare, "PIL": _by_pil, "torchvision": _by_torchvision}[self.how](
            samples
        )
        # Lists for members as they are; else one tensor of pictures.
        collate = lists if self.how == "bytes" else _stack
        batches = samples.batched(BATCH, collation_fn=collate)
        self._loader = webdataset.WebLoader(
            batches,
            batch_size=None,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )

    def epoch(self, number: int) -> Iterable[Batch]:  # noqa: ARG002  (its order is its own)
        return self._loader


def _bare(samples: Any) -> Any:
    return samples.map(member)


def member(sample: dict[str, Any]) -> tuple[bytes, int]:
    """A JPEG file and its class."""
    return sample["jpg"], int(sample["cls"])


def _by_pil(samples: Any) -> Any:
    from torchvision import transforms

    crop = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )
    return samples.decode("pil").to_tuple("jpg", "cls").map_tuple(crop)


def _by_torchvision(samples: Any) -> Any:
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
    return samples.map(member).map_tuple(_decode_jpeg).map_tuple(crop)


def _decode_jpeg(jpeg: bytes) -> Any:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), ImageReadMode.RGB)


def lists(samples: list[tuple[bytes, int]]) -> Batch:
    """A batch of JPEG files."""
    members, labels = zip(*samples, strict=True)
    return {"jpg": list(members), "cls": np.array(labels)}


def _stack(samples: list[tuple[Any, int]]) -> Batch:
    import torch

    pictures, labels = zip(*samples, strict=True)
    return {"jpg": torch.stack(pictures), "cls": torch.tensor(labels)}


@dataclass
class Dali(Contender):
    """A pipeline on CPUs, one thread for each core."""

    tars: Path

    def load(self) -> None:
        import nvidia.dali  # noqa: F401

    def open(self) -> None:
        import os

        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.plugin.base_iterator import LastBatchPolicy
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        paths = sorted(map(str, self.tars.glob("*.tar")))

        @pipeline_def  # type: ignore[misc]
        def pipeline() -> Any:
            jpeg, label = fn.readers.webdataset(
                paths=paths,
                ext=["jpg", "cls"],
                random_shuffle=True,
                initial_fill=BUFFER,
                missing_component_behavior="error",
                name="tars",
            )
            image = fn.decoders.image_random_crop(jpeg, device="cpu", random_area=[0.08, 1.0])
            image = fn.resize(image, size=(SIDE, SIDE))
            image = fn.flip(image, horizontal=fn.random.coin_flip())
            # Labels are digits of varying number, and the iterator wants one shape.
            return image, fn.pad(label, shape=[8])

        made = pipeline(batch_size=BATCH, num_threads=os.cpu_count(), device_id=None)
        self._batches = DALIGenericIterator(
            [made],
            ["jpg", "cls"],
            reader_name="tars",
            last_batch_policy=LastBatchPolicy.PARTIAL,
            auto_reset=True,
        )

    def epoch(self, number: int) -> Iterator[Batch]:  # noqa: ARG002  (its order is its own)
        for (batch,) in self._batches:
            digits = [bytes(row).rstrip(b"\0") for row in batch["cls"].numpy()]
            yield {"jpg": batch["jpg"], "cls": np.array(list(map(int, digits)))}


def count(batch: Batch) -> SupportsInt:
    """The bytes of the members, and the labels."""
    members = batch["jpg"]
    size = sum(map(len, members)) if isinstance(members, list) else int(members.lengths.sum())
    return size + int(batch["cls"].sum())


def _labels(batch: Batch) -> SupportsInt:
    """The labels. One byte of each picture is touched: crops differ from loader to loader."""
    assert int(batch["jpg"][:, 0, 0, 0].sum()) >= 0
    return int(batch["cls"].sum())


def compare(folder: Path, batch: Batch) -> int:
    """Compares members with the written ones. Returns the number of samples."""
    written, members = Written(folder), batch["jpg"]
    rows = members if isinstance(members, list) else members.rows()
    for row, label in zip(rows, batch["cls"].tolist(), strict=True):
        if bytes(row) != written[label]:
            raise AssertionError(f"sample {label} is not what was written")
    return len(rows)


def _is_in_shape(batch: Batch) -> int:
    """Checks the shape only: decoders differ by some levels, and crops are random."""
    shape = tuple(batch["jpg"].shape[1:])
    if sorted(shape) != [3, SIDE, SIDE]:
        raise AssertionError(f"pictures have the shape {shape}")
    return len(batch["cls"])
