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
#: So large that the allocator gives a block a map of its own, which goes when it is freed. Left to
#: itself it raises this to 32 MiB, once so large a block was freed; smaller ones then stay with the
#: arena of the thread that had them, and ``malloc_trim`` trims only the first arena to its end.
M_MMAP_THRESHOLD, THRESHOLD_BYTES = -3, 128 << 10
LIBC.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)

#: Growth that a process may have for its own reasons.
SLACK_BYTES = 16 << 20
#: How long a test waits for the rest to be given back.
WAIT_SECONDS = 60


def open_files() -> Counter[str]:
    """Files of this process, but for the one that it opens once, at the first row that it lends.
    Pipes of queues that are closed are so once the thread that fed them ends, for which torch does
    not wait.
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
    allocator keeps. Memory shared with others is left out: its part grows when a child ends that
    was forked long before.
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
        """Waits until the process holds no more than that. Tasks of the native module end, and free
        their part, soon after the call that waited for them.
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
