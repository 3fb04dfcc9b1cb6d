"""The cost of the background LIST at open: a warm first epoch with it and without it, in turns.

Rank 0 of a job lists the prefix in the background of its open; other ranks do not. Each round runs
one process of either kind. It opens the dataset and reads it eight times from a node that holds it
all. This stands for one epoch over more data than this host can hold.
Run with `python benches/python/listing.py [ROUNDS] [FILES]` after `make python`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

sys.path.append(str(Path(__file__).resolve().parents[2] / "client/python/tests"))

import larder
from harness import BINARIES, S3Server

#: Samples of a file, and their bytes. 500 files hold 2.8 GiB.
FILE_SAMPLES, SAMPLE_BYTES = 40, 150_528

JOB = """
import json, resource, time
import larder
begun = time.monotonic()
ds = larder.open("s3://data/listed")
opened = time.monotonic()
loader = ds.loader(batch_size=256, shuffle="global", seed=1, rank=0, world_size=1)
for _ in range(8):
    for _ in loader:
        pass
epoch, use = time.monotonic() - opened, resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"open": opened - begun, "epoch": epoch, "cpu": use.ru_utime + use.ru_stime}))
"""


def job(rank: int) -> dict[str, float]:
    """Runs one process: with the LIST as rank 0, without it as rank 1."""
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    said: dict[str, float] = json.loads(done.stdout)
    return said


def main() -> None:
    """Prints the medians and the ratio of each pair of epochs."""
    rounds, files = (int(word) for word in [*sys.argv[1:], "12", "500"][:2])
    with tempfile.TemporaryDirectory() as home, S3Server(Path(home)) as server:
        os.environ.update(
            XDG_RUNTIME_DIR=home, LARDER_NODE_BIN=str(BINARIES / "larder-node")
        )
        os.environ.update(LARDER_MEMORY="8GiB", LARDER_HOST_NODE_LINGER="2s")
        folder = server.folder / "data/listed"
        folder.mkdir()
        row = np.random.default_rng(7).integers(
            0, 256, (FILE_SAMPLES, SAMPLE_BYTES), np.uint8
        )
        for number in range(files):
            save_file({"image": row}, folder / f"part-{number:05}.safetensors")
        larder.index("s3://data/listed", shard_bytes=64 << 20)
        held = larder.open("s3://data/listed")
        for _ in range(2):
            job(1)
        pairs = []
        for number in range(rounds):
            ranks = (0, 1) if number % 2 else (1, 0)
            pairs.append({rank: job(rank) for rank in ranks})
        ratios = [pair[0]["epoch"] / pair[1]["epoch"] for pair in pairs]
        for rank, name in ((0, "with the LIST"), (1, "without it")):
            epochs = [pair[rank]["epoch"] for pair in pairs]
            opens = [pair[rank]["open"] for pair in pairs]
            cpus = [pair[rank]["cpu"] for pair in pairs]
            print(
                f"{name:14} epoch {statistics.median(epochs):.3f} s, "
                f"open {statistics.median(opens) * 1000:.1f} ms, "
                f"CPU {statistics.median(cpus):.3f} s"
            )
        quarters = statistics.quantiles(ratios, n=4)
        print(
            f"{files:,} files, {rounds} pairs: ratio of epochs {quarters[1]:.4f} "
            f"(quartiles {quarters[0]:.4f} to {quarters[2]:.4f})"
        )
        del held


main()
