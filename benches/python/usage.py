"""CPU time and memory of processes, as the kernel counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two checks of processes that will end.
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Memory:
    """The sum of the bytes of some processes. Shared bytes count in each process.

    Attributes:
        anonymous: heap and the like. A page that a fork shares counts for both.
        resident: the same, and mapped files and shared memory.
    """

    anonymous: int = 0
    resident: int = 0

    def peak(self, other: Memory) -> Memory:
        """The larger of each."""
        return Memory(max(self.anonymous, other.anonymous), max(self.resident, other.resident))


def tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for parent in found:
        tasks = Path(f"/proc/{parent}/task")
        for task in _entries(tasks):
            found += [int(child) for child in _read(tasks / task / "children").split()]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes since their begin, and of the children they waited for."""
    return sum(_cpu_seconds(pid) + _reaped_seconds(pid) for pid in pids)


def wait_until_ended(pids: Iterable[int], patience: float) -> bool:
    """Waits for processes, not only children. Returns whether they ended in time."""
    deadline = time.monotonic() + patience
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def memory(pids: list[int]) -> Memory:
    """The memory of processes now."""
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
    # The clock of a pid as clock_getcpuclockid(3) makes it: in nanoseconds, where /proc has ticks.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _reaped_seconds(pid: int) -> float:
    """Time of descendants that have ended, in ticks of a hundredth of a second."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def _entries(folder: Path) -> list[str]:
    """The entries of a folder of /proc; none if its process has ended."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: Path) -> str:
    """The text of a file of /proc; empty if its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
