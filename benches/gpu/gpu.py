"""The GPU of the figures: by torch and the driver, or over the stand-in without torch.

Both use the driver's legacy default stream, torch's first stream.
Thread rule: one thread. Non-goals: several GPUs.
"""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

import larder

from cuda import Driver
from figures import WrongBytes
from images import BATCH

Images = np.ndarray[Any, np.dtype[np.uint8]]
Batches = Callable[[], Iterable[Any]]

DEVICE = "cuda:0"
#: Images that are copied to the device at a time.
_CHUNK = 2048


class Gpu(ABC):
    """The GPU that batches go to."""

    #: The framework of the loaders' tensors.
    output: Literal["torch", "device"]

    def __init__(self) -> None:
        self.driver = Driver()

    @abstractmethod
    def await_bytes(self, batch: Any) -> None:
        """Makes the default stream wait for a batch."""

    @abstractmethod
    def comparison(self, written: Images) -> Callable[[str, Any], list[int]]:
        """Returns a function that compares a batch, and returns which images it has."""

    @abstractmethod
    def step(self, seconds: float) -> Callable[[], None]:
        """Returns a function that queues about `seconds` of work on the default stream."""

    def epoch(self, batches: Batches) -> None:
        """Runs an epoch until its last byte is on the device."""
        for batch in batches():
            self.await_bytes(batch)
        self.driver.finish()

    def compare(self, name: str, batches: Batches, written: Images) -> None:
        """Runs an epoch and compares every byte."""
        compare, found = self.comparison(written), list[int]()
        for batch in batches():
            found += compare(name, batch)
        if len(set(found)) != len(found) or len(found) != len(written) // BATCH * BATCH:
            raise WrongBytes(f"{name}: an epoch did not bring each sample once")


class ByTorch(Gpu):
    """A GPU that torch uses. Bytes are compared on the device."""

    output = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._torch: Any = importlib.import_module("torch")
        self._torch.cuda.init()
        self._kept: tuple[Images, Any] | None = None

    def await_bytes(self, batch: Any) -> None:
        """Does nothing: torch's current stream already waits for each batch."""

    def whole(self, written: Images) -> Any:
        """Returns all images in device memory."""
        if self._kept is None or self._kept[0] is not written:
            self._kept = None
            parts = range(0, len(written), _CHUNK)
            torch = self._torch
            whole = torch.empty(written.shape, dtype=torch.uint8, device=DEVICE)
            for begin in parts:
                part = torch.from_numpy(np.array(written[begin : begin + _CHUNK]))
                whole[begin : begin + _CHUNK] = part.to(DEVICE)
            self._kept = written, whole
        return self._kept[1]

    def comparison(self, written: Images) -> Callable[[str, Any], list[int]]:
        """Compares on the device."""
        whole = self.whole(written)

        def compare(name: str, batch: Any) -> list[int]:
            labels = batch["label"].to(whole.device)
            if not bool((batch["image"].to(whole.device) == whole[labels]).all()):
                raise WrongBytes(f"{name}: a batch on the device is not what was written")
            return [int(label) for label in labels.tolist()]

        return compare

    def step(self, seconds: float) -> Callable[[], None]:
        """Queues a kernel that only waits. Its length assumes that the clock rate stays."""
        torch, cycles = self._torch, 50_000_000
        torch.cuda._sleep(cycles)
        self.driver.finish()
        begun = time.perf_counter()
        torch.cuda._sleep(cycles)
        self.driver.finish()
        wanted = int(cycles * seconds / (time.perf_counter() - begun))
        return lambda: torch.cuda._sleep(wanted)


class ByStandin(Gpu):
    """The stand-in for the driver, without torch. Bytes are read back and compared on the host."""

    output = "device"

    def await_bytes(self, batch: Any) -> None:
        """Takes the array by the interface, so that the legacy default stream waits."""
        _ = batch["image"].__cuda_array_interface__

    def comparison(self, written: Images) -> Callable[[str, Any], list[int]]:
        """Compares on the host."""

        def compare(name: str, batch: Any) -> list[int]:
            labels = batch["label"].numpy()
            if not np.array_equal(batch["image"].numpy(), written[labels]):
                raise WrongBytes(f"{name}: a batch read back is not what was written")
            return [int(label) for label in labels]

        return compare

    def step(self, seconds: float) -> Callable[[], None]:
        """Sleeps on the host: the stand-in has no kernels."""
        return lambda: time.sleep(seconds)


def node_of(dataset: larder.Dataset) -> int:
    """The process of the node that this run started."""
    started = dataset._native.started_node
    if started is None:
        raise RuntimeError("the node of this host is not this run's")
    return started[0]
