"""A job that ends with its first batch. It prints the time of each step, in seconds since BEGUN.

    python job.py BEGUN larder|mapped torch|numpy SHUFFLE URI_OR_FOLDER

BEGUN is the monotonic clock before the start of the process. `mapped` reads by `images.columns`.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path


def main() -> None:
    begun, way, output, shuffle, where = sys.argv[1:]
    at = {"python": time.monotonic()}
    importlib.import_module(output)
    importlib.import_module("larder" if way == "larder" else "torch.utils.data")
    at["imported"] = time.monotonic()
    _larder(where, shuffle, output, at) if way == "larder" else _mapped(Path(where), at)
    used = resource.getrusage(resource.RUSAGE_SELF)
    said = {name: moment - float(begun) for name, moment in at.items()}
    said["cpu"] = used.ru_utime + used.ru_stime
    said["memory"] = used.ru_maxrss * 1024
    print(json.dumps(said))


def _larder(uri: str, shuffle: str, output: str, at: dict[str, float]) -> None:
    import larder
    from loaders import BATCH

    dataset = larder.open(uri)
    at["opened"] = time.monotonic()
    for batch in dataset.loader(BATCH, shuffle=shuffle, output=output):
        _use(batch)
        break
    at["first batch"] = time.monotonic()


def _mapped(folder: Path, at: dict[str, float]) -> None:
    from functools import partial

    import images
    from loaders import Mapped

    loader = Mapped("memmap", "baseline", partial(images.columns, folder), True, True, 0)
    loader.open()
    at["opened"] = time.monotonic()
    for batch in loader.epoch(0):
        _use(batch)
        break
    at["first batch"] = time.monotonic()


def _use(batch: dict[str, object]) -> None:
    for column in batch.values():
        column.sum()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
