"""CPU time and memory of processes, as the kernel counts them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


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
        return Memory(
            max(self.anonymous, other.anonymous), max(self.resident, other.resident)
        )


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in _read(children).split()]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes since each began."""
    return sum(_cpu_seconds(pid) for pid in pids)


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


def _read(path: Path) -> str:
    """A file of /proc; empty when its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
