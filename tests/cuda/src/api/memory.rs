//! Device memory, page-locked memory, registrations and pointers.
//!
//! Unified addressing: host memory has one address for the host and for devices.
//! Thread rule: any thread with a current context. Non-goals: pools and managed memory.

use std::ffi::{c_int, c_uint, c_void};

use super::Out;
use crate::codes::{self, Code};
use crate::gate::{call, release};
use crate::memory::RangeOwner;
use crate::state::State;
use crate::state::blocks::Kind;

/// Free and total bytes of the current device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Code {
    call("cuMemGetInfo_v2", |mut state| {
        let device = state.current("cuMemGetInfo_v2")?;
        free.put(state.free_bytes(device))?;
        total.put(state.settings.memory_bytes)
    })
}

/// Allocates device memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) -> Code {
    call("cuMemAlloc_v2", |mut state| {
        let device = state.current("cuMemAlloc_v2")?;
        address.put(state.allocate(Kind::Device, bytes, 0, device)?)
    })
}

/// Frees device memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> Code {
    release("cuMemFree_v2", |mut state| {
        state.current("cuMemFree_v2")?;
        state.free("cuMemFree_v2", Kind::Device, address)
    })
}

/// Allocates page-locked memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: c_uint) -> Code {
    call("cuMemHostAlloc", |mut state| {
        let device = state.current("cuMemHostAlloc")?;
        address.put(state.allocate(Kind::PageLocked, bytes, flags, device)?)
    })
}

/// Allocates page-locked memory without flags.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) -> Code {
    call("cuMemAllocHost_v2", |mut state| {
        let device = state.current("cuMemAllocHost_v2")?;
        address.put(state.allocate(Kind::PageLocked, bytes, 0, device)?)
    })
}

/// Frees page-locked memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFreeHost(address: u64) -> Code {
    release("cuMemFreeHost", |mut state| {
        state.current("cuMemFreeHost")?;
        state.free("cuMemFreeHost", Kind::PageLocked, address)
    })
}

/// Registers memory of the program.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: c_uint) -> Code {
    call("cuMemHostRegister_v2", |mut state| {
        let device = state.current("cuMemHostRegister_v2")?;
        state.register(address, bytes, flags, device)
    })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostUnregister(address: u64) -> Code {
    release("cuMemHostUnregister", |mut state| {
        state.current("cuMemHostUnregister")?;
        state.unregister("cuMemHostUnregister", address)
    })
}

/// The device address of page-locked or registered memory: the same address.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostGetDevicePointer_v2(
    to: Out<u64>,
    address: u64,
    _flags: c_uint,
) -> Code {
    call("cuMemHostGetDevicePointer_v2", |mut state| {
        state.current("cuMemHostGetDevicePointer_v2")?;
        match state.place(address, 1) {
            RangeOwner::PageLocked(_) | RangeOwner::Registered(_) => to.put(address),
            _ => Err(codes::INVALID_VALUE),
        }
    })
}

/// Start and size of the allocation that holds a device address.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemGetAddressRange_v2(
    start: Out<u64>,
    bytes: Out<usize>,
    address: u64,
) -> Code {
    call("cuMemGetAddressRange_v2", |state| {
        let RangeOwner::Device(base) = state.place(address, 1) else {
            return Err(codes::NOT_FOUND);
        };
        start.put_if_wanted(base);
        bytes.put_if_wanted(state.blocks[&base].twin.bytes());
        Ok(())
    })
}

/// An attribute of an address that the driver knows. The attribute decides the result's type.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuPointerGetAttribute(
    value: Out<c_void>,
    attribute: c_int,
    address: u64,
) -> Code {
    call("cuPointerGetAttribute", |state| state.pointer_attribute(value, attribute, address))
}

impl State {
    fn pointer_attribute(
        &self,
        value: Out<c_void>,
        attribute: c_int,
        address: u64,
    ) -> Result<(), Code> {
        let place = self.place(address, 1);
        let (base, device, bytes) = match place {
            RangeOwner::Device(base) | RangeOwner::PageLocked(base) => {
                (base, self.blocks[&base].device, self.blocks[&base].twin.bytes())
            }
            RangeOwner::Registered(base) => {
                (base, self.registrations[&base].device, self.registrations[&base].bytes)
            }
            RangeOwner::Pageable | RangeOwner::Astray { .. } => return Err(codes::INVALID_VALUE),
        };
        let on_device = matches!(place, RangeOwner::Device(_));
        match attribute {
            // Context.
            1 => value.cast().put(self.contexts[device].handle),
            // Memory type: 1 host, 2 device.
            2 => value.cast().put(if on_device { 2_u32 } else { 1 }),
            // Device pointer, and host pointer of host memory.
            3 => value.cast().put(address),
            4 if !on_device => value.cast().put(address),
            // Synchronous operations, managed memory: neither.
            6 | 8 => value.cast().put(0_u32),
            // Number of the allocation, start and size.
            7 | 11 => value.cast().put(base),
            9 => value.cast().put(c_int::try_from(device).map_err(|_| codes::INVALID_VALUE)?),
            12 => value.cast().put(bytes),
            13 => value.cast().put(1_u32),
            _ => Err(codes::INVALID_VALUE),
        }
    }
}
