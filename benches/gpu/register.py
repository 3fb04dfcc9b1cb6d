"""Can a GPU copy from the cache's own pages: a read-only map of a sealed memory file, registered?

Tests pages of 4 KiB, transparent huge pages and pages of a reserved pool: whether the driver takes
them, the cost of that, and whether it then copies as fast as from its own memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cuda import PORTABLE, READ_ONLY, CudaError, Driver
from figures import GIB, Report, WrongBytes, in_turns, rates

Pages = np.ndarray[Any, np.dtype[np.uint8]]

# Constants of Linux; Python 3.11 has no names for them.
_ADVISE_HUGE, _POPULATE_READ, _POPULATE_WRITE = 14, 22, 23
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_SHMEM_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")

KINDS = ("4 KiB", "transparent huge", "hugetlb")


class Missing(Exception):
    """This host has no such pages."""


def measure(report: Report, driver: Driver, size: int, rounds: int) -> None:
    """Row a, for each kind of pages, beside the driver's memory and unregistered memory."""
    said: dict[str, Any] = {"bytes": size, "read_only_supported": driver.registers_read_only()}
    content = np.random.default_rng(7).integers(0, 1 << 63, size // 8, np.int64).view(np.uint8)
    sources: dict[str, int] = {}
    kept = []
    with ExitStack() as held:
        for kind in KINDS:
            try:
                pages = sealed(kind, content)
            except Missing as reason:
                said[kind] = {"skipped": f"skipped: {reason}"}
                continue
            kept.append(pages)
            said[kind] = _registered(driver, pages, rounds)
            if "seconds" in said[kind]:
                driver.register(_address(pages), size, PORTABLE | READ_ONLY)
                held.callback(driver.unregister, _address(pages))
                sources[kind] = _address(pages)
        own = held.enter_context(driver.host_memory(size))
        _at(own, size)[:] = content
        sources |= {"cuMemAllocHost": own, "not registered": _address(content)}
        said["copies"] = _copied(driver, sources, content, rounds)
    _rows(report, said, size)
    _print(report, said, size)
    report.part("register", said)


def sealed(kind: str, content: Pages) -> Pages:
    """A read-only map of a sealed memory file of this content, as a client of a node has it."""
    if kind == "transparent huge" and "[never]" in (enabled := _SHMEM_ENABLED.read_text()):
        raise Missing(f"shmem_enabled is {enabled.strip()}")
    huge = 0x4 if kind == "hugetlb" else 0
    try:
        descriptor = os.memfd_create("larder-gpu", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | huge)
        os.ftruncate(descriptor, len(content))
        _fill(descriptor, content, kind)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        mapped = mmap.mmap(descriptor, len(content), prot=mmap.PROT_READ)
        os.close(descriptor)
        mapped.madvise(_POPULATE_READ)
    except OSError as error:
        raise Missing(str(error)) from error
    pages = np.frombuffer(mapped, np.uint8)
    if kind == "transparent huge" and not _huge_bytes(_address(pages)):
        raise Missing("the kernel gave pages of 4 KiB")
    return pages


def _fill(descriptor: int, content: Pages, kind: str) -> None:
    with mmap.mmap(descriptor, len(content)) as mapped:
        if kind == "transparent huge":
            mapped.madvise(_ADVISE_HUGE)
        # Does not touch the pages: with too small a pool a touch would end the process.
        mapped.madvise(_POPULATE_WRITE)
        mapped[:] = content.data


def _huge_bytes(address: int) -> int:
    """Returns the bytes of a map that are in huge pages."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            here = line.startswith(f"{address:x}-")
        elif here and line.startswith("ShmemPmdMapped:"):
            return int(line.split()[1]) * 1024
    return 0


def _registered(driver: Driver, pages: Pages, rounds: int) -> dict[str, Any]:
    """Registers pages with the driver's read-only flag and without. Returns success and time."""
    said: dict[str, Any] = {}
    for name, flags in (("without the flag", PORTABLE), ("read-only", PORTABLE | READ_ONLY)):
        try:
            seconds = [_seconds_to_register(driver, pages, flags) for _ in range(rounds)]
            said[name] = "taken"
        except CudaError as error:
            said[name] = str(error)
    if said["read-only"] == "taken":
        said["seconds"] = seconds
    return said


def _seconds_to_register(driver: Driver, pages: Pages, flags: int) -> float:
    begun = time.perf_counter()
    driver.register(_address(pages), len(pages), flags)
    seconds = time.perf_counter() - begun
    driver.unregister(_address(pages))
    return seconds


def _copied(
    driver: Driver, sources: dict[str, int], content: Pages, rounds: int
) -> dict[str, list[float]]:
    """Returns seconds of copies from each, in turns. Reads each copy back and compares it."""
    size, back = len(content), np.empty_like(content)
    with driver.device_memory(size) as device:
        for name, source in sources.items():
            driver.seconds_to_copy(device, source, size)
            driver.read_back(_address(back), device, size)
            if not np.array_equal(back, content):
                raise WrongBytes(f"copied from {name}, the device has other bytes")
            back[:] = 0
        ways: dict[str, Callable[[], float]] = {
            name: partial(driver.seconds_to_copy, device, source, size)
            for name, source in sources.items()
        }
        return in_turns(ways, rounds)


def _rows(report: Report, said: dict[str, Any], size: int) -> None:
    own = said["copies"]["cuMemAllocHost"]
    for kind in KINDS:
        of = said[kind]
        if "skipped" in of:
            continue
        taken = of["read-only"] == "taken"
        what = f"sealed map, {kind} pages, taken by cuMemHostRegister"
        report.at_least("a", what if taken else f"{what}: {of['read-only']}", int(taken), 1, "")
        if taken:
            seconds = median(of["seconds"]) * GIB / size
            report.seen("a", f"registering {kind} pages", seconds, "s/GiB")
            pairs = zip(said["copies"][kind], own, strict=True)
            figure = median(pinned / ours for ours, pinned in pairs)
            what = f"copy from registered {kind} pages: GB/s, as a share of page-locked"
            report.at_least("a", what, figure, 0.95, "x")


def _print(report: Report, said: dict[str, Any], size: int) -> None:
    supported = "yes" if said["read_only_supported"] else "no"
    heads = (
        "pages",
        "registered read-only",
        "without the flag",
        "s a GiB",
        "copied GiB/s, min, max",
    )
    rows = []
    for kind in (*KINDS, "cuMemAllocHost", "not registered"):
        of = said.get(kind, {})
        seconds = median(of["seconds"]) * GIB / size if "seconds" in of else ""
        copies = said["copies"].get(kind)
        rate = "" if copies is None else ", ".join(f"{r:.1f}" for r in rates(size / GIB, copies))
        taken = of.get("skipped") or of.get("read-only", "")
        rows.append((kind, taken, of.get("without the flag", ""), seconds, rate))
    report.table(
        f"Registering a sealed map (the device says that it can: {supported})", heads, rows
    )


def _address(array: Pages) -> int:
    return array.ctypes.data


def _at(address: int, size: int) -> Pages:
    """Wraps memory at an address. The owner must keep the memory."""
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    pages: Pages = np.frombuffer(memory, np.uint8)
    return pages
