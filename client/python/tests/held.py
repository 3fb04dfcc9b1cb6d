"""Measures the resources that this process holds, which a test must give back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time
from collections import Counter
from pathlib import Path

LIBC = ctypes.CDLL(None)
#: Size from which the allocator gives a block its own map, which ends when the block is freed. By
#: default the allocator raises this limit to 32 MiB after such a large block is freed. Smaller
#: blocks then stay in the arena of their thread, and ``malloc_trim`` trims only the first arena to
#: its end.
M_MMAP_THRESHOLD, THRESHOLD_BYTES = -3, 128 << 10
LIBC.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)

#: Growth that a process may have for its own reasons.
SLACK_BYTES = 16 << 20
#: Time for which a test waits until resources are given back.
WAIT_SECONDS = 60


def open_files() -> Counter[str]:
    """Open files of this process, except the one that it opens once, at its first view of a row.

    The pipe of a closed queue stays open until the thread that feeds it ends. torch does not wait
    for that thread.
    """
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join()
    files: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            files[str(entry.readlink())] += 1
    del files[f"/proc/{os.getpid()}/pagemap"]
    return files


def memory() -> int:
    """Anonymous and shared memory of this process, in bytes, without freed memory that its
    allocator keeps.

    Memory shared with other processes is left out: its part grows when an old forked child ends.
    """
    LIBC.malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


class Held:
    """The resources that the process held when this was made."""

    def __init__(self) -> None:
        gc.collect()
        self._files, self._bytes = open_files(), memory()

    def check(self) -> None:
        """Waits until the process holds no more than these resources.

        Tasks of the native module end, and free their part, soon after the call that waited for
        them.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while (more := self._more()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not more, more

    def _more(self) -> str:
        """The further resources, in words."""
        gc.collect()
        files, grown = open_files(), memory() - self._bytes
        more = files.total() - self._files.total()
        if more <= 0 and grown < SLACK_BYTES:
            return ""
        new = ", ".join(files - self._files)
        return f"{more} open files and {grown:,} bytes more than before (new ones: {new or 'none'})"
