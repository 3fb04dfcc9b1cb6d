"""CPU time and memory of processes, as the kernel counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two looks at processes that are to end.
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Memory:
    """Bytes that processes have at one moment, added up: what they share is counted in each.

    Attributes:
        anonymous: heap and the like; a page that a fork shares counts for both.
        resident: this, and what is mapped of files and of shared memory.
    """

    anonymous: int = 0
    resident: int = 0

    def peak(self, other: Memory) -> Memory:
        """The larger of each."""
        return Memory(max(self.anonymous, other.anonymous), max(self.resident, other.resident))


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        tasks = Path(f"/proc/{parent}/task")
        for task in _entries(tasks):
            found += [int(child) for child in _read(tasks / task / "children").split()]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes since each began, and of those that they waited for."""
    return sum(_cpu_seconds(pid) + _reaped_seconds(pid) for pid in pids)


def wait_until_ended(pids: Iterable[int], patience: float) -> bool:
    """Wait for processes that need not be children; tell whether they ended in time."""
    deadline = time.monotonic() + patience
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def memory(pids: list[int]) -> Memory:
    """What processes have in memory now."""
    anonymous = resident = 0
    for pid in pids:
        for line in _read(Path(f"/proc/{pid}/status")).splitlines():
            name, _, value = line.partition(":")
            if name == "RssAnon":
                anonymous += int(value.split()[0]) * 1024
            elif name == "VmRSS":
                resident += int(value.split()[0]) * 1024
    return Memory(anonymous, resident)


def _cpu_seconds(pid: int) -> float:
    # What clock_getcpuclockid(3) makes of a pid: to the nanosecond, where /proc counts in ticks.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _reaped_seconds(pid: int) -> float:
    """Time of descendants that have ended, in ticks of a hundredth of a second."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def _entries(folder: Path) -> list[str]:
    """What is in a folder of /proc; nothing when its process has ended."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: Path) -> str:
    """A file of /proc; empty when its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
