"""Are bytes on the device right when each batch is dropped at once, while work on it is queued?

A kernel that only waits runs before each copy. So when the device reads a batch, the program has
dropped it, and the loader has had time to produce others. Batches in page-locked memory are copied
to the device after the wait; batches in device memory are copied on the device. All copies are
compared on the device. As a control, the same runs with unguarded page-locked memory that the next
batch but one overwrites: there the comparison must find wrong bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import larder

from figures import Report, WrongBytes
from gpu import DEVICE, ByTorch, Images
from images import SHAPE, images, uri

#: Images and their labels. Their copies may still be queued.
Queued = Iterator[tuple[torch.Tensor, torch.Tensor]]

#: Small batches, so that many are ready and their memory is soon reused.
BATCH = 64
#: Cycles that the device waits before a copy: about a millisecond.
WAIT_CYCLES = 2_000_000
#: Copies that may wait at a time.
QUEUED = 16


def measure(report: Report, gpu: ByTorch, folder: Path, count: int, batches: int) -> None:
    """Counts wrong bytes of Larder's batches (there must be none) and of unguarded memory."""
    written = images(folder)[:count]
    whole = gpu.whole(written)
    part = larder.open(uri(folder)).select(range(count))
    control = min(batches, 256)
    ways = {
        "page-locked": _page_locked(part, batches),
        **{
            f"device=, output={output!r}, {way}": _on_device(part, output, way, batches)
            for output in ("torch", "device")
            for way in ("staged", "direct")
        },
        "memory that nothing guards": _unguarded(written, control),
    }
    said: dict[str, int | str] = {}
    for name, queued in ways.items():
        try:
            said[name] = _wrong(queued, whole)
        except larder.InvalidArgument as refused:
            said[name] = str(refused)
    wrong = {name: said[name] for name in said if name != "memory that nothing guards"}
    report.table("Batches dropped at once", ("batches", "wrong bytes"), list(said.items()))
    report.part("dropped", {"batches": batches, "wrong": said})
    if any(isinstance(count, int) and count > 0 for count in wrong.values()):
        raise WrongBytes(f"of batches that were dropped at once: {wrong}")
    total = sum(count for count in wrong.values() if isinstance(count, int))
    report.at_most("dropped", f"wrong bytes of {batches} batches, each way", total, 0, "bytes")
    if said["memory that nothing guards"] == 0:
        print("unguarded memory came out right too: on this machine that says nothing of Larder's")


def _wrong(queued: Queued, whole: torch.Tensor) -> int:
    """Counts on the device the bytes of images that do not match their labels."""
    wrong = 0
    while some := list(islice(queued, QUEUED)):
        torch.cuda.synchronize()
        for image, labels in some:
            wrong += int((image != whole[labels.to(whole.device)]).sum())
    return wrong


def _page_locked(part: larder.Dataset, batches: int) -> Queued:
    """Yields the queued device copy of each batch's images, and a host copy of its labels."""
    loader = part.loader(BATCH, shuffle="global", prefetch=4, output="torch", pin_memory=True)
    yield from _moved(islice(_epochs(loader), batches))


def _moved(batches: Iterator[dict[str, Any]]) -> Queued:
    for batch in batches:
        torch.cuda._sleep(WAIT_CYCLES)
        image, labels = batch["image"].to("cuda", non_blocking=True), batch["label"].clone()
        del batch
        yield image, labels


def _on_device(part: larder.Dataset, output: Any, way: Any, batches: int) -> Queued:
    """Yields a copy of each batch that the device makes after a wait, when the batch is dropped."""
    loader = part.loader(
        BATCH, shuffle="global", prefetch=4, output=output, device=DEVICE, device_way=way
    )
    for batch in islice(_epochs(loader), batches):
        torch.cuda._sleep(WAIT_CYCLES)
        image, labels = _tensor(batch["image"]), _tensor(batch["label"])
        copies = image.clone(), labels.clone()
        del batch, image, labels
        yield copies


def _tensor(value: Any) -> torch.Tensor:
    imported: torch.Tensor = value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)
    return imported


def _epochs(loader: larder.Loader) -> Iterator[dict[str, Any]]:
    while True:
        yield from loader


def _unguarded(written: Images, batches: int) -> Queued:
    yield from _moved(_in_two_pieces(written, batches))


def _in_two_pieces(written: Images, batches: int) -> Iterator[dict[str, Any]]:
    """Yields batches in two alternating pieces of memory, page-locked without torch's knowledge."""
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
