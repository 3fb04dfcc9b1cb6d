"""The counts of this process as text of Prometheus."""

from __future__ import annotations

import gc
import re

import larder
from harness import S3Server

_LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\})? ([0-9.e+-]+)')


def counts() -> dict[tuple[str, str], float]:
    """The values of all metrics by name and labels."""
    found = {}
    described = set()
    for line in larder.metrics().splitlines():
        if line.startswith("# "):
            described.add(line.split()[2])
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        name, labels, value = match.groups()
        assert name in described, line
        found[name, labels or ""] = float(value)
    return found


def test_counts_of_a_job_stay_when_its_loader_ends(s3: S3Server) -> None:
    job = 'a "job" of mine'
    label = r'job="a \"job\" of mine"'
    loader = larder.open("s3://data/images").loader(batch_size=100, job=job)
    assert counts()["larder_loader_batches_total", label] == 0
    assert sum(len(batch["label"]) for batch in loader) == 300
    during = counts()
    assert during["larder_loader_batches_total", label] == 3
    assert during["larder_loader_samples_total", label] == 300
    rows = [during["larder_loader_rows_total", f'{label},source="{source}"']
            for source in ("local", "remote", "origin")]  # fmt: skip
    assert sum(rows) == 300
    assert during["larder_loader_waiting_seconds_total", label] > 0
    del loader
    gc.collect()
    after = counts()
    assert after["larder_loader_samples_total", label] == 300
    again = larder.open("s3://data/images").loader(batch_size=100, job=job)
    next(iter(again))
    assert counts()["larder_loader_samples_total", label] == 400


def test_bytes_of_the_process_are_those_of_stats(s3: S3Server) -> None:
    larder.open("s3://data/images").take([5])
    stats, found = larder.stats(), counts()
    for way in ("viewed", "local", "remote", "direct", "device"):
        assert found["larder_process_bytes_received_total", f'way="{way}"'] == stats[f"{way}_bytes"]
