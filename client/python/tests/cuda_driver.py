"""The CUDA driver as a consumer of batches calls it, by ctypes, and the report of the stand-in.

Thread rule: each thread that calls makes :meth:`Driver.use` current first.
Non-goals: a driver of the tests' own; children load the stand-in under the name ``libcuda.so.1``.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Flags of the driver.
NON_BLOCKING, DISABLE_TIMING, PORTABLE = 1, 2, 1
#: The driver's answer about work that is still queued.
NOT_READY = 600
#: Time limit for work of the device.
WAIT_SECONDS = 10


class Driver:
    """The driver that this process has loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that must succeed."""
        code = self.code(name, *arguments)
        assert code == 0, f"{name} returned {code}"

    def code(self, name: str, *arguments: Any) -> int:
        """Calls a function with pointers and 64-bit numbers."""
        exact = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        return int(getattr(self._library, name)(*exact))

    def number(self, name: str, *arguments: Any) -> int:
        """The 64-bit number that a function stores where its first argument points."""
        out = ctypes.c_uint64()
        self.call(name, ctypes.byref(out), *arguments)
        return out.value

    def use(self, ordinal: int = 0) -> None:
        """Makes the primary context of a device current; :meth:`release` gives it back."""
        self.call("cuInit", 0)
        self.call("cuCtxSetCurrent", self.number("cuDevicePrimaryCtxRetain", ordinal))

    def release(self, ordinal: int = 0) -> None:
        self.call("cuCtxSetCurrent", 0)
        self.call("cuDevicePrimaryCtxRelease_v2", ordinal)

    def stream(self) -> int:
        """A stream that no other work delays."""
        return self.number("cuStreamCreate", NON_BLOCKING)

    def destroy(self, stream: int) -> None:
        self.call("cuStreamDestroy_v2", stream)

    def event(self, stream: int) -> int:
        """An event that is recorded on a stream now."""
        event = self.number("cuEventCreate", DISABLE_TIMING)
        self.call("cuEventRecord", event, stream)
        return event

    def is_done(self, event: int) -> bool:
        code = self.code("cuEventQuery", event)
        assert code in (0, NOT_READY), f"cuEventQuery returned {code}"
        return code == 0

    def wait(self, event: int) -> None:
        """Polls an event, and destroys it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.is_done(event):
            assert time.monotonic() < deadline, "the device is not done"
            time.sleep(0.0002)
        self.call("cuEventDestroy_v2", event)

    def finish(self, stream: int) -> None:
        """Waits for the work of one stream."""
        self.wait(self.event(stream))

    def report(self) -> dict[str, Any]:
        """The stand-in's record of all calls so far."""
        handle, path = tempfile.mkstemp(suffix=".json")
        os.close(handle)
        try:
            assert self._library.larder_standin_report(path.encode()) == 0
            return json.loads(Path(path).read_text())
        finally:
            Path(path).unlink()

    def settle(self) -> dict[str, Any]:
        """Waits until the program has given everything back, and returns the report."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            gc.collect()
            report = self.report()
            if not any(report["left"].values()) or time.monotonic() > deadline:
                return report
            time.sleep(0.005)


class Landing:
    """Page-locked memory of the host into which a stream copies."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        self.address = driver.number("cuMemHostAlloc", nbytes, PORTABLE)

    def queue(self, address: int, nbytes: int, stream: int) -> None:
        """Queues a copy from the device, and returns at once."""
        assert nbytes <= self.nbytes
        self._driver.call("cuMemcpyDtoHAsync_v2", self.address, address, nbytes, stream)

    def bytes(self, nbytes: int) -> bytes:
        return ctypes.string_at(self.address, nbytes)

    def array(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.bytes(nbytes), dtype).reshape(shape)

    def free(self) -> None:
        self._driver.call("cuMemFreeHost", self.address)


class DLTensor(ctypes.Structure):
    """A tensor of DLPack."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    """The form before DLPack 1.0."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER))


class DLManagedTensorVersioned(ctypes.Structure):
    """The form of DLPack 1."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


_API = ctypes.pythonapi
_API.PyCapsule_GetName.restype = ctypes.c_char_p
_API.PyCapsule_GetName.argtypes = [ctypes.py_object]
_API.PyCapsule_GetPointer.restype = ctypes.c_void_p
_API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_API.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


#: Names of used capsules, which keep a pointer to theirs.
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


class Imported:
    """A capsule of DLPack as a consumer takes it: renamed, and deleted by the consumer."""

    def __init__(self, capsule: Any) -> None:
        name = _API.PyCapsule_GetName(capsule)
        self.is_versioned = name == b"dltensor_versioned"
        form = DLManagedTensorVersioned if self.is_versioned else DLManagedTensor
        self._pointer = _API.PyCapsule_GetPointer(capsule, name)
        self.managed = form.from_address(self._pointer)
        _API.PyCapsule_SetName(capsule, _USED[name])

    @property
    def address(self) -> int:
        return self.managed.tensor.data + self.managed.tensor.byte_offset

    def fields(self) -> dict[str, Any]:
        tensor = self.managed.tensor
        return {
            "device": [tensor.device_type, tensor.device_id],
            "dtype": [tensor.code, tensor.bits, tensor.lanes],
            "shape": tensor.shape[: tensor.ndim],
            "strides": tensor.strides[: tensor.ndim],
            "byte_offset": tensor.byte_offset,
        }

    def delete(self) -> None:
        """Calls the deleter."""
        self.managed.deleter(self._pointer)
