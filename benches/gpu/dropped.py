"""Are bytes on the device right when each batch is dropped while its copy is still to begin?

A kernel that only waits goes before each copy, so that the program has dropped the batch, and the
loader has had time to gather others, when the device reads it. What arrives is compared on the
device. To see that this would find a mistake, the same is done with page-locked memory that nobody
guards and that the next batch but one is written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import larder

from figures import WrongBytes, table
from images import SHAPE, images, uri

#: Small ones, so that many lie ready and their memory comes round soon.
BATCH = 64
#: Cycles that the device waits before a copy: about a millisecond.
WAIT_CYCLES = 2_000_000
#: Copies that may wait at a time.
QUEUED = 16


def measure(folder: Path, device: str, batches: int) -> dict[str, Any]:
    """Wrong bytes of Larder's batches, of which there must be none, and of unguarded memory's."""
    written = images(folder)
    whole = torch.from_numpy(written).to(device)
    said: dict[str, Any] = {"batches": batches, "bytes": batches * BATCH * written[0].nbytes}
    said["wrong"] = _wrong(_of_larder(folder, device, batches), whole)
    if device == "cuda":
        control = min(batches, 256)
        said["control"] = {"batches": control, "wrong": _wrong(_unguarded(written, control), whole)}
    rows = [(f"Larder, {batches} batches", said["wrong"])]
    if "control" in said:
        rows.append((f"memory that nobody guards, {control} batches", said["control"]["wrong"]))
    table("Wrong bytes on the device", ("batches dropped at once", "wrong bytes"), rows)
    if said["wrong"] != 0:
        raise WrongBytes(f"{said['wrong']} bytes of batches that were dropped at once")
    if "control" in said and said["control"]["wrong"] == 0:
        print("unguarded memory came out right too: on this machine that says nothing of Larder's")
    return said


def _wrong(batches: Iterator[dict[str, Any]], whole: torch.Tensor) -> int:
    """Bytes of images that are not those of their labels, counted on the device."""
    wrong = 0
    while queued := list(islice(_queued(batches, whole.device), QUEUED)):
        if whole.is_cuda:
            torch.cuda.synchronize()
        for image, labels in queued:
            wrong += int((image != whole[labels.to(whole.device)]).sum())
    return wrong


def _queued(
    batches: Iterator[dict[str, Any]], device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The images of each batch on their way to the device, and a copy of its labels on the host."""
    for batch in batches:
        if device.type == "cuda":
            torch.cuda._sleep(WAIT_CYCLES)
        image, labels = batch["image"].to(device, non_blocking=True), batch["label"].clone()
        del batch
        yield image, labels


def _of_larder(folder: Path, device: str, batches: int) -> Iterator[dict[str, Any]]:
    dataset = larder.open(uri(folder))
    loader = dataset.loader(
        BATCH, shuffle="global", prefetch=4, output="torch", pin_memory=device == "cuda"
    )

    def epochs() -> Iterator[dict[str, Any]]:
        while True:
            yield from loader

    return islice(epochs(), batches)


def _unguarded(written: np.ndarray[Any, Any], batches: int) -> Iterator[dict[str, Any]]:
    """Batches in two pieces of memory by turns, page-locked without torch's knowing."""
    rng = np.random.default_rng(8)
    pieces = [torch.empty((BATCH, *SHAPE), dtype=torch.uint8) for _ in range(2)]
    cudart = torch.cuda.cudart()
    for piece in pieces:
        cudart.cudaHostRegister(piece.data_ptr(), piece.nbytes, 0)
    for number in range(batches):
        labels = rng.integers(0, len(written), BATCH)
        piece = pieces[number % 2]
        piece.numpy()[:] = written[labels]
        yield {"image": piece, "label": torch.from_numpy(labels)}
    torch.cuda.synchronize()
    for piece in pieces:
        cudart.cudaHostUnregister(piece.data_ptr())
