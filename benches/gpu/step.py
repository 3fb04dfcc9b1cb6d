"""A training step of 1.5 times the transfer: does the device wait for the transfer?

The loop queues a step while the device does the one before it, as training loops do that read their
loss a step late. The baseline is the same loop over one batch that is there already. The first
batch of an epoch is waited for before the clock starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain, islice, repeat
from statistics import median
from typing import Any

import larder

from figures import Clocked, Report, as_json, clocked, in_turns
from gpu import DEVICE, Gpu, Images, node_of
from images import BATCH
from ways import BATCH_BYTES

#: Steps of a round at most.
_STEPS = 200
_NO_LOADER = "the same batch again and again"


def measure(
    report: Report, gpu: Gpu, dataset: larder.Dataset, written: Images, rounds: int
) -> None:
    """Row e."""
    transfer = _seconds_to_copy(gpu)
    step = gpu.step(1.5 * transfer)
    loaders = {
        f"steps, {way}, prefetch={prefetch}": dataset.loader(
            BATCH,
            shuffle="global",
            prefetch=prefetch,
            output=gpu.output,
            device=DEVICE,
            device_way=way,
        )
        for way, prefetch in _settings()
    }
    for name, loader in loaders.items():
        gpu.compare(name, partial(iter, loader), written)
    count = min(_STEPS, len(written) // BATCH)

    node = node_of(dataset)

    def steps(batches: Iterable[Any]) -> None:
        before = gpu.driver.mark()
        for batch in islice(batches, count):
            gpu.await_bytes(batch)
            step()
            now = gpu.driver.mark()
            gpu.driver.wait(before)
            before = now
        gpu.driver.wait(before)

    def alone(loader: larder.Loader) -> Clocked:
        batch = next(iter(loader))
        gpu.await_bytes(batch)
        gpu.driver.finish()
        return clocked(lambda: steps(repeat(batch)), node)

    def training(loader: larder.Loader) -> Clocked:
        batches = iter(loader)
        first = next(batches)
        gpu.await_bytes(first)
        gpu.driver.finish()
        return clocked(lambda: steps(chain([first], batches)), node)

    clocks = {name: partial(training, loader) for name, loader in loaders.items()}
    clocks[_NO_LOADER] = partial(alone, next(iter(loaders.values())))
    said = in_turns(clocks, rounds)
    rows = []
    for name in loaders:
        stalls = [
            ours.seconds / base.seconds - 1
            for ours, base in zip(said[name], said[_NO_LOADER], strict=True)
        ]
        rows.append((name, f"{median(stalls):.2%}", f"{min(stalls):.2%}", f"{max(stalls):.2%}"))
        if "auto" in name:
            report.at_most("e", f"{name}: stall", 100 * median(stalls), 1.0, "%")
        else:
            report.seen("e", f"{name}: stall", 100 * median(stalls), "%")
    title = f"{count} steps of {1500 * transfer:.2f} ms"
    report.table(title, ("way", "stall", "min", "max"), rows)
    report.part("step", {"transfer_seconds": transfer, "steps": count, "rounds": as_json(said)})


def _settings() -> list[tuple[Any, int]]:
    return [("auto", 4), ("staged", 4), ("staged", 16)]


def _seconds_to_copy(gpu: Gpu) -> float:
    """Returns the time to copy a page-locked batch, by the device's clock."""
    with (
        gpu.driver.host_memory(BATCH_BYTES) as host,
        gpu.driver.device_memory(BATCH_BYTES) as device,
    ):
        copies = [gpu.driver.seconds_to_copy(device, host, BATCH_BYTES) for _ in range(20)]
    return median(copies)
