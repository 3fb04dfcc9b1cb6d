"""The measure of held resources, by which other tests judge."""

from __future__ import annotations

import ctypes
import threading

import pytest

from held import LIBC, SLACK_BYTES, Held

BLOCK_BYTES = 640 << 10
BLOCKS = 2 * SLACK_BYTES // BLOCK_BYTES

LIBC.malloc.restype = ctypes.c_void_p
LIBC.malloc.argtypes = [ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]


def allocate(bytes_: int, blocks: int) -> list[int]:
    made = [LIBC.malloc(bytes_) for _ in range(blocks)]
    for block in made:
        ctypes.memset(block, 7, bytes_)
    return made


def free(blocks: list[int]) -> None:
    for block in blocks:
        LIBC.free(block)


def test_memory_freed_by_a_thread_does_not_count() -> None:
    free(allocate(30 << 20, 1))
    held = Held()
    thread = threading.Thread(target=lambda: free(allocate(BLOCK_BYTES, BLOCKS)))
    thread.start()
    thread.join()
    held.check()


def test_memory_held_by_a_thread_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("held.WAIT_SECONDS", 0)
    held = Held()
    kept: list[int] = []
    thread = threading.Thread(target=lambda: kept.extend(allocate(BLOCK_BYTES, BLOCKS)))
    thread.start()
    thread.join()
    with pytest.raises(AssertionError, match="bytes more than before"):
        held.check()
    free(kept)
    held.check()
