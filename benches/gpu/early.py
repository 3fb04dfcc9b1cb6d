"""The first batch of a process, with shards registered in the background and without.

Each round is a separate process, because registrations last as long as the process. It does not
import torch: the import takes longer than the measured work.

    python early.py URI WAY BATCHES
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from figures import Report, in_turns
from images import BATCH

if TYPE_CHECKING:
    import larder

_SECONDS_MAX = 120
#: Time limit for the first registered shard.
_SECONDS_TO_REGISTER = 20


def measure(report: Report, uri: str, batches: int, rounds: int) -> None:
    """Row f."""
    clocks = {way: partial(_child, uri, way, batches) for way in ("auto", "staged")}
    said = in_turns(clocks, rounds)
    for way, rows in said.items():
        if way == "auto" and not any(row["viewed_bytes"] for row in rows):
            report.failed("f", "no batch went directly: nothing was registered")
            return
    firsts = _medians(said, "first")
    later = 1000 * (firsts["auto"] - firsts["staged"])
    gib = median(row["bytes"] for row in said["auto"]) / (1 << 30)
    what = f"first batch of {gib:.1f} GiB that are registered meanwhile: later by"
    report.at_most("f", what, later, 100, "ms")
    slowest = _medians(said, "slowest")
    figure = 1000 * (slowest["auto"] - slowest["staged"])
    report.seen("f", "slowest batch meanwhile: later by", figure, "ms")
    heads = ("way", "first batch, s", "slowest of the others, s", "all, s")
    sums = _medians(said, "all")
    cells = [(way, firsts[way], slowest[way], sums[way]) for way in said]
    report.table("The first epochs of a process, medians", heads, cells)
    report.part("first", {"rounds": said})


def _medians(said: Mapping[str, list[dict[str, Any]]], name: str) -> dict[str, float]:
    return {way: median(row[name] for row in rows) for way, rows in said.items()}


def _child(uri: str, way: str, batches: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), uri, way, str(batches)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS_MAX, env=environment
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def _one(uri: str, way: Any, batches: int) -> dict[str, Any]:
    import larder

    from cuda import Driver
    from gpu import DEVICE

    driver, dataset = Driver(), larder.open(uri)
    # Opens the device and finds the host node before the clock starts.
    small = dataset.loader(1, shuffle="none", output="device", device=DEVICE, device_way="staged")
    for batch in small:
        _ = batch["image"].__cuda_array_interface__
        break
    driver.finish()
    begun = time.perf_counter()
    loader = dataset.loader(
        BATCH, shuffle="global", prefetch=4, output="device", device=DEVICE, device_way=way
    )
    waits = list[float]()
    while not _is_enough(loader, len(waits), batches, way, time.perf_counter() - begun):
        asked = time.perf_counter() if waits else begun
        for batch in loader:
            _ = batch["image"].__cuda_array_interface__
            driver.finish()
            waits.append(time.perf_counter() - asked)
            asked = time.perf_counter()
    stats = loader.stats()
    return {
        "first": waits[0],
        "slowest": max(waits[1:batches], default=0.0),
        "all": sum(waits[:batches]),
        "bytes": len(dataset) * stats["bytes"] / stats["samples"],
        "viewed_bytes": stats["viewed_bytes"],
    }


def _is_enough(loader: larder.Loader, count: int, batches: int, way: str, seconds: float) -> bool:
    """Returns whether to stop: enough batches, and for `auto` a registered shard or the limit."""
    if count < batches:
        return False
    return way == "staged" or loader.stats()["viewed_bytes"] > 0 or seconds > _SECONDS_TO_REGISTER


if __name__ == "__main__":
    print(json.dumps(_one(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
