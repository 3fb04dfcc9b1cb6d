"""The staged and the direct way, beside one page-locked batch that is copied again and again.

All are epochs of the same number of bytes, by the clock of the host, until the last byte is on the
device. Every byte is compared before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

import larder

from figures import GIB, Clocked, Report, as_json, clocked, fastest, in_turns, rates, ratio
from gpu import DEVICE, Gpu, Images, node_of
from images import BATCH, SAMPLE_BYTES

BATCH_BYTES = BATCH * SAMPLE_BYTES
#: The baseline.
PINNED = "one page-locked batch, copied again and again"

#: Threads that gather. Beyond some number of them the memory of the host is the limit.
_STAGED = (2, 4, 8, 16)
_DIRECT = (2, 4)


def staged(report: Report, gpu: Gpu, dataset: larder.Dataset, written: Images, rounds: int) -> None:
    """Row b."""
    loaders = {
        f"staged, shuffled, prefetch={prefetch}": _loader(
            gpu, dataset, "staged", "global", prefetch
        )
        for prefetch in _STAGED
    }
    said = _measure(gpu, dataset, written, loaders, rounds)
    best = fastest(said, list(loaders))
    figure = ratio(said[best], said[PINNED])
    report.at_least("b", f"{best}: GB/s, as a share of page-locked", figure, 0.95, "x")
    _tell(report, "staged", said, loaders, written)


def direct(report: Report, gpu: Gpu, dataset: larder.Dataset, written: Images, rounds: int) -> None:
    """Row c."""
    loaders = {
        f"direct, {order}, prefetch={prefetch}": _loader(gpu, dataset, "direct", shuffle, prefetch)
        for order, shuffle in (("side by side", "none"), ("scattered", "global"))
        for prefetch in _DIRECT
    }
    said = _measure(gpu, dataset, written, loaders, rounds)
    for order, target in (("side by side", 0.95), ("scattered", 0.85)):
        best = fastest(said, [name for name in loaders if order in name])
        figure = ratio(said[best], said[PINNED])
        report.at_least("c", f"{best}: GB/s, as a share of page-locked", figure, target, "x")
        cpu = median(one.cpu_seconds for one in said[best]) / _gib(written)
        report.at_most("c", f"{best}: CPU of the host", cpu, 0.02, "s/GiB")
    _tell(report, "direct", said, loaders, written)


def _loader(
    gpu: Gpu, dataset: larder.Dataset, way: Any, shuffle: str, prefetch: int
) -> larder.Loader:
    return dataset.loader(
        BATCH, shuffle=shuffle, prefetch=prefetch, output=gpu.output, device=DEVICE, device_way=way
    )


def _measure(
    gpu: Gpu,
    dataset: larder.Dataset,
    written: Images,
    loaders: dict[str, larder.Loader],
    rounds: int,
) -> dict[str, list[Clocked]]:
    node = node_of(dataset)
    for name, loader in loaders.items():
        gpu.compare(name, partial(iter, loader), written)
    with ExitStack() as held:
        host = held.enter_context(gpu.driver.host_memory(BATCH_BYTES))
        device = held.enter_context(gpu.driver.device_memory(BATCH_BYTES))

        def copies() -> None:
            for _ in range(len(written) // BATCH):
                gpu.driver.copy(device, host, BATCH_BYTES)
            gpu.driver.finish()

        works: dict[str, Callable[[], None]] = {
            name: partial(gpu.epoch, partial(iter, loader)) for name, loader in loaders.items()
        }
        works[PINNED] = copies
        clocks = {name: partial(clocked, work, node) for name, work in works.items()}
        return in_turns(clocks, rounds)


def _gib(written: Images) -> float:
    return len(written) // BATCH * BATCH_BYTES / GIB


def _tell(
    report: Report,
    key: str,
    said: dict[str, list[Clocked]],
    loaders: dict[str, larder.Loader],
    written: Images,
) -> None:
    rows = []
    for name, each in said.items():
        rate, low, high = rates(_gib(written), [one.seconds for one in each])
        cpu = median(one.cpu_seconds for one in each) / _gib(written)
        rows.append((name, rate, low, high, cpu, ratio(each, said[PINNED])))
    heads = ("way", "GiB/s", "min", "max", "CPU s/GiB", "to page-locked")
    report.table(f"{_gib(written):.1f} GiB in batches of 38.5 MB, {key}", heads, rows)
    stats = {name: loader.stats() for name, loader in loaders.items()}
    report.part(key, {"gib": _gib(written), "rounds": as_json(said), "stats": stats})
