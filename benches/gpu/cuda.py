"""The few calls of the CUDA driver that torch does not offer, by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

#: Flags of `cuMemHostRegister`.
PORTABLE, READ_ONLY = 1, 8
#: `CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED`.
_READ_ONLY_SUPPORTED = 113
#: The device name of the stand-in for the driver. No figure is taken from such a device.
STANDIN = "Stand-in"
#: Waits for an event let the thread sleep.
_BLOCKING = 1
_NAME_BYTES = 100


class CudaError(Exception):
    """The driver's error, by its name."""


class Driver:
    """The first GPU, with the context that torch uses as well."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", c_uint(0))
        self._device, context = c_int(), c_void_p()
        self._call("cuDeviceGet", byref(self._device), c_int(0))
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def name(self) -> str:
        """Returns the device's name, such as `NVIDIA H200`."""
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGetName", name, c_int(_NAME_BYTES), self._device)
        return name.value.decode()

    def version(self) -> str:
        """Returns the CUDA version of the driver."""
        version = c_int()
        self._call("cuDriverGetVersion", byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"

    def registers_read_only(self) -> bool:
        """Returns whether the device claims to register memory that is mapped read-only."""
        value = c_int()
        attribute = c_int(_READ_ONLY_SUPPORTED)
        self._call("cuDeviceGetAttribute", byref(value), attribute, self._device)
        return value.value == 1

    def register(self, address: int, size: int, flags: int) -> None:
        """Page-locks memory of this process for the device."""
        self._call("cuMemHostRegister_v2", c_void_p(address), c_size_t(size), c_uint(flags))

    def unregister(self, address: int) -> None:
        """Undoes `register`."""
        self._call("cuMemHostUnregister", c_void_p(address))

    @contextmanager
    def host_memory(self, size: int) -> Iterator[int]:
        """Yields the address of page-locked memory that the driver allocated."""
        address = c_void_p()
        self._call("cuMemAllocHost_v2", byref(address), c_size_t(size))
        try:
            yield address.value or 0
        finally:
            self._call("cuMemFreeHost", address)

    @contextmanager
    def device_memory(self, size: int) -> Iterator[int]:
        """Yields the address of device memory."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        try:
            yield address.value
        finally:
            self._call("cuMemFree_v2", address)

    def copy(self, device: int, host: int, size: int) -> None:
        """Queues a copy to the device, on the default stream."""
        target, source, stream = c_uint64(device), c_void_p(host), c_void_p()
        self._call("cuMemcpyHtoDAsync_v2", target, source, c_size_t(size), stream)

    def mark(self) -> c_void_p:
        """Returns an event after all work that is queued on the default stream now."""
        event, stream = c_void_p(), c_void_p()
        self._call("cuEventCreate", byref(event), c_uint(_BLOCKING))
        self._call("cuEventRecord", event, stream)
        return event

    def wait(self, event: c_void_p) -> None:
        """Waits for an event of `mark`, without spinning. Destroys the event."""
        self._call("cuEventSynchronize", event)
        self._call("cuEventDestroy_v2", event)

    def finish(self) -> None:
        """Waits for all work on the default stream."""
        self.wait(self.mark())

    def seconds_to_copy(self, device: int, host: int, size: int) -> float:
        """Copies to the device. Returns the seconds by the device's clock."""
        begun, ended, milliseconds = c_void_p(), c_void_p(), c_float()
        stream = c_void_p()
        for event in (begun, ended):
            self._call("cuEventCreate", byref(event), c_uint(0))
        self._call("cuEventRecord", begun, stream)
        self.copy(device, host, size)
        self._call("cuEventRecord", ended, stream)
        self._call("cuEventSynchronize", ended)
        self._call("cuEventElapsedTime", byref(milliseconds), begun, ended)
        for event in (begun, ended):
            self._call("cuEventDestroy_v2", event)
        return milliseconds.value / 1000

    def read_back(self, host: int, device: int, size: int) -> None:
        """Copies from the device, and waits for the copy."""
        self._call("cuMemcpyDtoH_v2", c_void_p(host), c_uint64(device), c_size_t(size))

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            said = c_char_p()
            self._library.cuGetErrorName(code, byref(said))
            raise CudaError(f"{name}: {(said.value or b'an unknown error').decode()}")
