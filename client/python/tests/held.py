"""What this process holds: to be the same again after what a test did."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from pathlib import Path

#: What a process may grow by for its own reasons.
SLACK_BYTES = 16 << 20
#: How long what is left is waited for.
WAIT_SECONDS = 60


def open_files() -> int:
    """Files of this process. Pipes of queues that are closed are so once the thread that fed them
    ends, for which torch does not wait.
    """
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join()
    return len(os.listdir("/proc/self/fd"))


def memory() -> int:
    """Anonymous and shared memory of this process, in bytes, without what its allocator keeps of
    what was freed. Not its part of what it shares with others: that grows when a child ends that
    was forked long before.
    """
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


class Held:
    """What the process held when this was made."""

    def __init__(self) -> None:
        gc.collect()
        self._files, self._bytes = open_files(), memory()

    def check(self, beside: int = 0) -> None:
        """Wait until no more is held than that, and than so many bytes beside: what the native
        module's tasks have goes when they end, soon after who waited for them.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while (more := self._more(beside)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not more, more

    def _more(self, beside: int) -> str:
        """What is held beside that, in words."""
        gc.collect()
        files, grown = open_files() - self._files, memory() - self._bytes
        said = f"{files} open files and {grown:,} bytes more than before"
        return said if files > 0 or grown >= SLACK_BYTES + beside else ""
