"""The counts of this process in the text format of Prometheus.

Loaders count for themselves. A loader that ends leaves its counts here, so that no sum falls.

Thread rule: any thread. Non-goals: serving the text, and the metrics of nodes, which each serves
under ``/metrics``.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from larder import _larder
from larder._seconds import counting

#: Returns the counts of a loader.
_Stats: TypeAlias = Callable[[], Mapping[str, float]]

#: Of each count of a loader: the metric, its meaning, and the label that tells it from others.
_OF_LOADERS = {
    "batches": ("batches_total", "batches handed out", ""),
    "samples": ("samples_total", "samples handed out", ""),
    "padding": ("padding_total", "rows that only fill a last batch", ""),
    "skipped": ("skipped_total", "samples that could not be decoded or transformed", ""),
    "rows_local": ("rows_total", "rows by their source", 'source="local"'),
    "rows_remote": ("rows_total", "rows by their source", 'source="remote"'),
    "rows_origin": ("rows_total", "rows by their source", 'source="origin"'),
    "bytes": ("bytes_total", "bytes of rows", ""),
    "origin_bytes": ("origin_bytes_total", "bytes read from the origin for these rows", ""),
    "fetching_seconds": ("fetching_seconds_total", "time that threads fetched batches", ""),
    "loop_waiting_seconds": ("waiting_seconds_total", "time that loops waited for batches", ""),
    "loop_using_seconds": ("using_seconds_total", "time that loops used batches", ""),
    "transform_seconds": ("transform_seconds_total", "time that transforms took", ""),
}

#: The same of the process. `larder.stats` describes them.
_OF_PROCESS = {
    f"{way}_bytes": ("bytes_received_total", "bytes that came, by their way", f'way="{way}"')
    for way in ("viewed", "local", "remote", "direct", "device")
}

#: By a number: the job of a loader, and its counts.
_living: dict[int, tuple[str, _Stats]] = {}
#: The counts of loaders that have ended, by job.
_ended: dict[str, Counter[str]] = {}
os.register_at_fork(after_in_child=_ended.clear)


def watch(loader: object, job: str, stats: _Stats) -> None:
    """Counts this loader in. ``stats`` must not hold it."""
    number = id(stats)
    with counting():
        _living[number] = (job, stats)
    weakref.finalize(loader, _end, number).atexit = False


def _end(number: int) -> None:
    """The loader has ended."""
    with counting():
        job, stats = _living.pop(number)
        _ended.setdefault(job, Counter()).update(stats())


def metrics() -> str:
    """The counts of this process, in the text format of Prometheus.

    Metrics of loaders begin with ``larder_loader_`` and have the label ``job``. Those of the whole
    process begin with ``larder_process_``. Counts of worker processes are their own.
    """
    with counting():
        jobs = {job: Counter(counts) for job, counts in _ended.items()}
        for job, stats in _living.values():
            jobs.setdefault(job, Counter()).update(stats())
    lines = list(_lines("larder_process_", _OF_PROCESS, {"": _larder.stats()}))
    lines += _lines("larder_loader_", _OF_LOADERS, {f'job="{_escaped(j)}"': jobs[j] for j in jobs})
    return "".join(f"{line}\n" for line in lines)


def _lines(
    prefix: str,
    known: Mapping[str, tuple[str, str, str]],
    counts: Mapping[str, Mapping[str, float]],
) -> Iterator[str]:
    described = set()
    for count, (name, meaning, label) in known.items():
        name = prefix + name
        if name not in described and counts:
            described.add(name)
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} counter"
        for labels, values in counts.items():
            inner = ",".join(filter(None, (labels, label)))
            yield f"{name}{{{inner}}} {values[count]}" if inner else f"{name} {values[count]}"


def _escaped(text: str) -> str:
    """A text as the value of a label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
