"""Seconds to the first batch of a job: restarted on a host with a warm cache, and cold on one
million indexed samples.

Each job is a new process (`job.py`), timed from before its start. A cold job also starts the node
of the host, which is empty then. The files are in the page cache. A remote store would add its
round trips.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import images

#: Bytes of a sample of the large dataset.
SAMPLE_BYTES = 1024

#: Files of the large dataset.
FILES = 16


@dataclass
class Start:
    """One way to begin, and the output of each of its jobs."""

    name: str
    run: Callable[[], dict[str, float]]
    rounds: list[dict[str, float]] = field(default_factory=list)


def write(folder: Path, samples: int) -> None:
    """Writes the large dataset: samples of one tensor."""
    rng = np.random.default_rng(7)
    (folder / "many").mkdir()
    from safetensors.numpy import save_file

    for file in range(FILES):
        rows = rng.integers(0, 256, size=(samples // FILES, SAMPLE_BYTES), dtype=np.uint8)
        save_file({"row": rows}, folder / "many" / f"part-{file:02}.safetensors")


def uri(folder: Path) -> str:
    """The URI for Larder."""
    return f"file://{folder}/many"


def restarts(folder: Path) -> list[Start]:
    """Jobs on images that the node of this host holds."""
    where = images.uri(folder)
    return [
        Start("memmap + DataLoader", lambda: _job("mapped", "torch", "global", str(folder))),
        Start("larder, torch", lambda: _job("larder", "torch", "global", where)),
        Start("larder, numpy", lambda: _job("larder", "numpy", "global", where)),
    ]


def cold(folder: Path) -> list[Start]:
    """Jobs on the large dataset, each with an empty node."""
    return [
        Start("reading all files, one thread", lambda: _read(folder)),
        Start("larder, shuffle auto", lambda: _cold(folder, "auto")),
        Start("larder, shuffle none", lambda: _cold(folder, "none")),
    ]


def clock(starts: list[Start], rounds: int) -> list[Start]:
    """Runs each way in turn, several times."""
    for _ in range(rounds):
        for start in starts:
            start.rounds.append(start.run())
    return starts


def _job(way: str, output: str, shuffle: str, where: str, **environment: str) -> dict[str, float]:
    job = Path(__file__).with_name("job.py")
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, job, str(begun), way, output, shuffle, where],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        timeout=600,
        check=True,
    )
    said: dict[str, float] = json.loads(done.stdout)
    return said


def _cold(folder: Path, shuffle: str) -> dict[str, float]:
    # A new name makes a new node, which ends soon after its only job.
    name = f"cold-{time.monotonic_ns()}"
    settings = {"LARDER_HOST_NODE": name, "LARDER_HOST_NODE_LINGER": "1s"}
    said = _job("larder", "numpy", shuffle, uri(folder), **settings)
    _wait_until_ended(name)
    return said


def _wait_until_ended(name: str) -> None:
    """Waits until the node has ended, so that the next job has its memory and its cores."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(name):
        time.sleep(0.05)


def _runs(name: str) -> bool:
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in command.read_bytes():
                return True
        except OSError:
            continue
    return False


def _read(folder: Path) -> dict[str, float]:
    begun, cpu = time.monotonic(), time.process_time()
    buffer = bytearray(8 << 20)
    for path in sorted((folder / "many").glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    seconds = time.monotonic() - begun
    return {"first batch": seconds, "cpu": time.process_time() - cpu}
