//! Devices and their attributes.
//!
//! These calls only ask, so a lost device answers them. The device's name makes benches refuse it.
//! Thread rule: any thread. Non-goals: attributes that only matter to kernels.

use std::ffi::{c_char, c_int};

use super::Out;
use crate::codes::{self, Code};
use crate::gate::ask;
use crate::state::State;

/// The name of each device.
const NAME: &str = "Stand-in";

impl State {
    fn device(&self, ordinal: c_int) -> Result<usize, Code> {
        let known = usize::try_from(ordinal).ok().filter(|index| *index < self.contexts.len());
        known.ok_or(codes::INVALID_DEVICE)
    }

    pub(super) fn retain(&mut self, ordinal: c_int) -> Result<u64, Code> {
        let device = self.device(ordinal)?;
        self.contexts[device].retained += 1;
        Ok(self.contexts[device].handle)
    }

    /// Releases once; tells whether it was the last time.
    pub(super) fn release(&mut self, ordinal: c_int) -> Result<Option<usize>, Code> {
        let device = self.device(ordinal)?;
        let context = &mut self.contexts[device];
        context.retained = context.retained.checked_sub(1).ok_or(codes::INVALID_CONTEXT)?;
        Ok((context.retained == 0).then_some(device))
    }

    fn attribute(&self, attribute: c_int, device: usize) -> Result<c_int, Code> {
        let bus = c_int::try_from(device).map_err(|_| codes::INVALID_DEVICE)? + 1;
        Ok(match attribute {
            // Warp size, multiprocessors, copy engines.
            10 => 32,
            16 => 1,
            40 => 2,
            // Overlap, mapped host memory, concurrent kernels, unified addressing, stream
            // priorities, host pointers of registered memory, and host registration.
            15 | 19 | 31 | 41 | 78 | 91 | 99 => 1,
            33 => bus,
            // Compute capability 9.0.
            75 => 9,
            113 => c_int::from(self.settings.read_only),
            // Other attributes that the header names: absent.
            1..=145 => 0,
            _ => return Err(codes::INVALID_VALUE),
        })
    }
}

fn uuid(device: usize) -> [u8; 16] {
    let mut uuid = *b"larder-standin-0";
    uuid[15] = u8::try_from(device).unwrap_or(u8::MAX);
    uuid
}

/// The number of devices.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> Code {
    ask("cuDeviceGetCount", |state| {
        count.put(c_int::try_from(state.contexts.len()).map_err(|_| codes::INVALID_VALUE)?)
    })
}

/// The device with an ordinal.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) -> Code {
    ask("cuDeviceGet", |state| state.device(ordinal).and_then(|_| device.put(ordinal)))
}

/// The device's name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetName(name: Out<c_char>, length: c_int, device: c_int) -> Code {
    ask("cuDeviceGetName", |state| state.device(device).and_then(|_| name.put_text(NAME, length)))
}

/// The device's UUID.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetUuid(to: Out<[u8; 16]>, device: c_int) -> Code {
    ask("cuDeviceGetUuid", |state| state.device(device).and_then(|device| to.put(uuid(device))))
}

/// The device's UUID.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetUuid_v2(to: Out<[u8; 16]>, device: c_int) -> Code {
    ask("cuDeviceGetUuid_v2", |state| state.device(device).and_then(|device| to.put(uuid(device))))
}

/// The device's memory in bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> Code {
    ask("cuDeviceTotalMem_v2", |state| {
        state.device(device).and_then(|_| bytes.put(state.settings.memory_bytes))
    })
}

/// An attribute of the device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetAttribute(
    value: Out<c_int>,
    attribute: c_int,
    device: c_int,
) -> Code {
    ask("cuDeviceGetAttribute", |state| {
        value.put(state.attribute(attribute, state.device(device)?)?)
    })
}

/// The device's PCI address.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDeviceGetPCIBusId(
    address: Out<c_char>,
    length: c_int,
    device: c_int,
) -> Code {
    ask("cuDeviceGetPCIBusId", |state| {
        let bus = state.device(device)? + 1;
        address.put_text(&format!("0000:{bus:02x}:00.0"), length)
    })
}
