"""The index of 10 GB on garage, beside the least that any program would read for it.

    python -m formats.indexing scan|footers|text PREFIX

reads all bytes of the objects, or the footers of Parquet files, or their column `text`. It prints
the seconds without those of its imports.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import usage
from contest import LOOK_SECONDS
from peers.garage import BUCKET, Garage, client

HERE = Path(__file__).resolve().parents[1]

#: Requests at a time: twice as many as the index of Larder has.
AT_ONCE = 16

#: Bytes of a request of a full scan.
PART_BYTES = 8 << 20

#: Files that differ. They are stored under several names.
FILES = 4


@dataclass(frozen=True)
class Cost:
    """What a program took."""

    seconds: float
    cpu_seconds: float
    #: The peak of its heap and the like.
    peak_bytes: int


def write_fixed(folder: Path, file_bytes: int) -> None:
    """Writes Parquet files with numbers and lists of numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(21)
    rows = file_bytes // (16 + 256)
    for number in range(FILES):
        features = pa.FixedSizeListArray.from_arrays(rng.standard_normal(rows * 64, np.float32), 64)
        table = {
            "id": np.arange(rows),
            "score": rng.standard_normal(rows),
            "features": features,
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet", row_group_size=rows // 2)


def write_text(folder: Path, file_bytes: int) -> None:
    """Writes Parquet files with numbers and texts of 1 KiB or so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(22)
    letters = rng.choice(np.frombuffer(b"etaoin shrdlu cmfwyp vbgkqj xz", np.uint8), 1 << 24)
    letters = letters.tobytes().decode()
    for number in range(FILES):
        lengths = rng.integers(200, 1800, file_bytes // 640)
        begins = rng.integers(0, len(letters) - 1800, len(lengths))
        texts = [letters[at : at + size] for at, size in zip(begins, lengths, strict=True)]
        table = {"id": np.arange(len(texts)), "text": texts}
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(table), path, row_group_size=len(texts) // 2)


def publish(folder: Path, prefix: str, total: int, store: Garage) -> int:
    """Stores copies of the files until they have `total` bytes. Returns their bytes."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    copies = max(1, round(total / size))
    for copy in range(copies):
        store.upload(folder, f"{prefix}/{copy:03}")
    return size * copies


def clock(command: list[str], *, says_seconds: bool = False) -> Cost:
    """Runs a program to its end. It may print the seconds, to leave out its imports."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE)
    peak = usage.Memory()
    # Not `ru_maxrss`, in which the memory of this process counts too.
    while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
        peak = peak.peak(usage.memory([process.pid]))
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - start
    _, status, used = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command} failed with {process.returncode}")
    assert process.stdout is not None
    said = process.stdout.read()
    seconds = float(said) if says_seconds else seconds
    return Cost(seconds, used.ru_utime + used.ru_stime, peak.anonymous)


def scan(prefix: str, at_once: int = AT_ONCE) -> int:
    """Reads all bytes of the objects in parts, and throws them away. Returns their number."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        BUCKET,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    def get(part: tuple[str, int, int]) -> int:
        key, start, end = part
        return len(obstore.get_range(store, key, start=start, end=end))

    parts = [
        (key, at, min(at + PART_BYTES, size))
        for key, size in _objects(prefix)
        for at in range(0, size, PART_BYTES)
    ]
    with ThreadPoolExecutor(at_once) as threads:
        return sum(threads.map(get, parts))


def _footers(prefix: str) -> None:
    import pyarrow.parquet as pq

    files = _file_system()

    def read(key: str) -> None:
        pq.read_metadata(files.open_input_file(f"{BUCKET}/{key}"))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(read, [key for key, _ in _objects(prefix)]):
            pass


def _text(prefix: str) -> None:
    import pyarrow.parquet as pq

    files = _file_system()
    for key, _ in _objects(prefix):
        pq.read_table(f"{BUCKET}/{key}", columns=["text"], filesystem=files)


def _file_system() -> Any:
    from pyarrow.fs import S3FileSystem

    address = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    return S3FileSystem(endpoint_override=address, scheme="http", region=os.environ["AWS_REGION"])


def _objects(prefix: str) -> list[tuple[str, int]]:
    pages = client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    found = [(one["Key"], one["Size"]) for page in pages for one in page.get("Contents", ())]
    return [(key, size) for key, size in found if "/.larder/" not in key]


if __name__ == "__main__":
    import boto3  # noqa: F401
    import obstore  # noqa: F401
    import pyarrow.fs
    import pyarrow.parquet  # noqa: F401

    begun = time.perf_counter()
    {"scan": scan, "footers": _footers, "text": _text}[sys.argv[1]](sys.argv[2])
    print(time.perf_counter() - begun)
