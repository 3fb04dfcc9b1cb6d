//! GPUs: lists them, and tests whether they copy from the cache's own pages.

use larder_client::{Device, DeviceFacts, Error};

use super::check::Check;
use crate::output::units;

const NAME: &str = "GPU";
const WHY: &str = "batches can come in the memory of a GPU: loader(device=\"cuda\")";

pub(super) fn checks() -> Vec<Check> {
    match Device::list() {
        Ok(devices) if devices.is_empty() => {
            vec![Check::ok(NAME, "none, or no driver (libcuda.so)", WHY)]
        }
        Ok(devices) => devices.iter().map(device).collect(),
        Err(error) => vec![Check::warn(NAME, reason(&error), WHY, hint(&error))],
    }
}

fn device(device: &DeviceFacts) -> Check {
    let DeviceFacts { ordinal, name, memory_bytes, driver, .. } = device;
    let bytes = units::bytes(*memory_bytes);
    let found = format!("cuda:{ordinal} is {name}, {bytes}, driver for CUDA {driver}");
    let opened = Device::cuda(*ordinal);
    match opened.and_then(|device| device.try_registering()) {
        Ok(()) => Check::ok(NAME, format!("{found}; registers pages of the cache"), WHY),
        Err(error) => Check::warn(
            NAME,
            format!("{found}; {}", reason(&error)),
            "a GPU that registers pages of the cache copies from them: no copy on the host",
            "nothing is to be done: batches are copied through page-locked memory",
        ),
    }
}

fn reason(error: &Error) -> String {
    error.to_string()
}

fn hint(error: &Error) -> &str {
    error.advice_text().unwrap_or("look at nvidia-smi")
}
