//! The pump without a loader, for tests of other crates.
//!
//! Thread rule: as the pump's. Non-goals: released builds. Only the feature `testing` contains it.

use std::{ops::Range, sync::Arc};

use larder_extent::Attached;

use super::{
    CopyRun, CopySource, Device, DeviceBlock, DeviceMemory, DeviceSlice, DeviceWay, OwnStream,
    Pump, ReadyBlock, Transfer,
};
use crate::{CancelToken, Error};

/// Sends bytes to a device as a loader does.
pub struct Rig {
    pump: Arc<Pump>,
}

impl Rig {
    /// A rig with the pump of a loader of `threads` threads, of which `ahead` batches may be on the
    /// device.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn new(device: &Device, threads: usize, ahead: usize) -> Result<Self, Error> {
        Ok(Self { pump: Pump::new(device, DeviceWay::Direct, threads, ahead)? })
    }

    /// The pump.
    pub fn pump(&self) -> &Pump {
        &self.pump
    }

    /// Sends bytes through a page-locked buffer into a given block, or into one of the pump.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn send(&self, bytes: &[u8], given: Option<ReadyBlock>) -> Result<DeviceSlice, Error> {
        let mut buffer = self.pump.stage(bytes.len(), &CancelToken::never())?;
        buffer.copy_from_slice(bytes);
        let block = self.pump.block(bytes.len(), given, &CancelToken::never())?;
        let run = CopyRun { source: 0, from: 0..bytes.len(), to: block.address() };
        let transfer = Transfer { sources: vec![CopySource::Staged(buffer)], runs: vec![run] };
        self.queue(transfer, block)
    }

    /// Sends parts of an extent, back to back, straight from its pages.
    ///
    /// # Errors
    /// Errors of the driver. Also if it does not register the extent.
    pub fn send_parts(
        &self,
        extent: &Arc<Attached>,
        parts: &[Range<usize>],
    ) -> Result<DeviceSlice, Error> {
        let registration = self.pump.registered(extent, &CancelToken::never())?;
        let bytes = parts.iter().map(Range::len).sum();
        let block = self.pump.block(bytes, None, &CancelToken::never())?;
        let mut to = block.address();
        let runs = parts.iter().map(|part| {
            let run = CopyRun { source: 0, from: part.clone(), to };
            to += part.len() as u64;
            run
        });
        let runs = runs.collect();
        let sources = vec![CopySource::Extent { registration, extent: Arc::clone(extent) }];
        self.queue(Transfer { sources, runs }, block)
    }

    fn queue(&self, transfer: Transfer, mut block: DeviceBlock) -> Result<DeviceSlice, Error> {
        self.pump.send(transfer, &mut block)?;
        Ok(DeviceSlice::whole(Arc::new(block)))
    }
}

/// Reads a slice on a stream of the program, as a kernel would. Waits only for the events that the
/// stream was told to wait for.
///
/// # Errors
/// Errors of the driver.
pub fn read_on(stream: &OwnStream, slice: &DeviceSlice) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; slice.len()];
    stream.0.read(slice.address(), &mut bytes)?;
    Ok(bytes)
}

/// Writes to a slice on a stream of the program, as a kernel would. Does not wait for it.
///
/// # Errors
/// Errors of the driver.
pub fn write_on(
    stream: &OwnStream,
    slice: &DeviceSlice,
    bytes: &[u8],
    rig: &Rig,
) -> Result<(), Error> {
    let mut buffer = rig.pump.stage(bytes.len(), &CancelToken::never())?;
    buffer.copy_from_slice(bytes);
    let run = CopyRun { source: 0, from: 0..bytes.len(), to: slice.address() };
    let transfer =
        Arc::new(Transfer { sources: vec![CopySource::Staged(buffer)], runs: vec![run] });
    stream.0.copy(&transfer)?;
    rig.pump.device().lot.park(vec![stream.0.record()?], transfer);
    Ok(())
}

/// Device memory of a program.
pub struct OwnMemory(Arc<dyn DeviceMemory>);

impl OwnMemory {
    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn new(device: &Device, bytes: usize) -> Result<Self, Error> {
        device.driver.memory(bytes).map(Self)
    }

    /// The device address of its first byte.
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// Whether this process has a GPU open, because it copies or because memory of it is in use.
pub fn has_gpu_open() -> bool {
    #[cfg(feature = "cuda")]
    return super::cuda::is_any_open();
    #[cfg(not(feature = "cuda"))]
    false
}
