//! Copies and fills.
//!
//! Synchronous calls run on the legacy default stream. A copy to pageable memory waits even if the
//! call is asynchronous, as in a real driver.
//! Thread rule: any thread with a current context; calls wait for room in the stream's queue.
//! Non-goals: arrays, peers and managed memory.

use std::ffi::{c_int, c_uchar, c_uint};

use super::{In, Out};
use crate::codes::{self, Code};
use crate::copies::{Request, RequestKind, Row, Way};
use crate::gate::call;
use crate::state::Held;
use crate::stream::{room, synchronize};

/// `CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL`.
const DURING_API_CALL: u32 = 2;
/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE` and `CU_MEMORYTYPE_UNIFIED`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

/// `CUmemcpyAttributes`, 24 bytes: the access order and hints, which the stand-in ignores.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes {
    pub(crate) access_order: u32,
    pub(crate) hints: [c_int; 4],
    pub(crate) flags: c_uint,
}

const _: () = assert!(size_of::<Attributes>() == 24);

/// One end of `CUDA_MEMCPY2D`, 56 bytes: host address or device address, by type.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Side {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) kind: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`, 128 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rectangle {
    pub(crate) from: Side,
    pub(crate) to: Side,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
}

const _: () = assert!(size_of::<Rectangle>() == 128);

impl Side {
    /// The address of a row.
    fn row(&self, index: usize, width_bytes: usize) -> Result<u64, Code> {
        let start = match self.kind {
            HOST => self.host,
            DEVICE | UNIFIED => self.device,
            _ => return Err(codes::INVALID_VALUE),
        };
        let pitch = if self.pitch == 0 { width_bytes } else { self.pitch };
        if pitch < self.x_bytes + width_bytes {
            return Err(codes::INVALID_VALUE);
        }
        Ok(start + ((self.y + index) * pitch + self.x_bytes) as u64)
    }
}

/// Queues a request and waits where the driver waits.
fn copied(state: Held, mut request: Request) -> Result<(), (Code, usize)> {
    let synchronous = request.kind == RequestKind::Synchronous;
    let mut state = state;
    let all = |code| (code, usize::MAX);
    request.stream = state.stream(request.call, request.stream).map_err(all)?;
    state = room(state, request.stream).map_err(all)?;
    let queued = state.copy(&request)?;
    let waits = match request.way {
        Way::ToDevice => synchronous && !queued.all_taken,
        Way::ToHost => synchronous || queued.to_pageable,
        Way::OnDevice | Way::Any => queued.to_pageable,
    };
    if waits {
        let streams = state.covered(request.stream);
        drop(synchronize(state, &streams).map_err(all)?);
    }
    Ok(())
}

/// A call that copies one row. Without a stream the call is synchronous.
fn one(
    name: &'static str,
    way: Way,
    (to, from, bytes): (u64, u64, usize),
    on: Option<u64>,
) -> Code {
    let kind = if on.is_some() { RequestKind::Asynchronous } else { RequestKind::Synchronous };
    let rows = vec![Row { to, from, bytes, at_call: false }];
    let request = Request { call: name, stream: on.unwrap_or(0), way, rows, kind };
    call(name, |state| copied(state, request).map_err(|(code, _)| code))
}

/// Copies from the host and waits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) -> Code {
    one("cuMemcpyHtoD_v2", Way::ToDevice, (to, from, bytes), None)
}

/// Copies to the host and waits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) -> Code {
    one("cuMemcpyDtoH_v2", Way::ToHost, (to, from, bytes), None)
}

/// Copies in device memory on the legacy default stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> Code {
    one("cuMemcpyDtoD_v2", Way::OnDevice, (to, from, bytes), None)
}

/// Copies from the host on a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, on: u64) -> Code {
    one("cuMemcpyHtoDAsync_v2", Way::ToDevice, (to, from, bytes), Some(on))
}

/// Copies to the host on a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, on: u64) -> Code {
    one("cuMemcpyDtoHAsync_v2", Way::ToHost, (to, from, bytes), Some(on))
}

/// Copies in device memory on a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, on: u64) -> Code {
    one("cuMemcpyDtoDAsync_v2", Way::OnDevice, (to, from, bytes), Some(on))
}

/// Fills device memory on the legacy default stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemsetD8_v2(at: u64, byte: c_uchar, bytes: usize) -> Code {
    call("cuMemsetD8_v2", |mut state| {
        let stream = state.stream("cuMemsetD8_v2", 0)?;
        room(state, stream)?.fill("cuMemsetD8_v2", stream, (at, byte, bytes))
    })
}

/// Fills device memory on a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemsetD8Async(at: u64, byte: c_uchar, bytes: usize, on: u64) -> Code {
    call("cuMemsetD8Async", |mut state| {
        let stream = state.stream("cuMemsetD8Async", on)?;
        room(state, stream)?.fill("cuMemsetD8Async", stream, (at, byte, bytes))
    })
}

/// Copies a rectangle on a stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpy2DAsync_v2(rectangle: In<Rectangle>, on: u64) -> Code {
    let name = "cuMemcpy2DAsync_v2";
    call(name, |state| {
        let rectangle = rectangle.read(1)?[0];
        let bytes = rectangle.width_bytes;
        let row = |index| {
            let (to, from) = (rectangle.to.row(index, bytes)?, rectangle.from.row(index, bytes)?);
            Ok::<_, Code>(Row { to, from, bytes, at_call: false })
        };
        let rows = (0..rectangle.height).map(row).collect::<Result<_, _>>()?;
        let way = match (rectangle.from.kind, rectangle.to.kind) {
            (HOST, DEVICE) => Way::ToDevice,
            (DEVICE, HOST) => Way::ToHost,
            (DEVICE, DEVICE) => Way::OnDevice,
            _ => Way::Any,
        };
        let request =
            Request { call: name, stream: on, way, rows, kind: RequestKind::Asynchronous };
        copied(state, request).map_err(|(code, _)| code)
    })
}

/// Copies many rows on a stream that is not the legacy default stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyBatchAsync(
    to: In<u64>,
    from: In<u64>,
    sizes: In<usize>,
    count: usize,
    attributes: In<Attributes>,
    first_rows: In<usize>,
    attributes_count: usize,
    failed: Out<usize>,
    on: u64,
) -> Code {
    let name = "cuMemcpyBatchAsync";
    call(name, |state| {
        failed.put_if_wanted(usize::MAX);
        if on < 2 || count == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let (to, from, sizes) = (to.read(count)?, from.read(count)?, sizes.read(count)?);
        let orders = access_orders(
            &attributes.read(attributes_count)?,
            &first_rows.read(attributes_count)?,
            count,
        )?;
        let row = |index: usize| Row {
            to: to[index],
            from: from[index],
            bytes: sizes[index],
            at_call: orders[index] == DURING_API_CALL,
        };
        let rows = (0..count).map(row).collect();
        let request =
            Request { call: name, stream: on, way: Way::Any, rows, kind: RequestKind::Batch };
        copied(state, request).map_err(|(code, row)| {
            failed.put_if_wanted(row);
            code
        })
    })
}

/// The access order of each row. Attribute `i` holds from row `first_rows[i]` on.
fn access_orders(
    attributes: &[Attributes],
    first_rows: &[usize],
    count: usize,
) -> Result<Vec<u32>, Code> {
    let rising = first_rows.windows(2).all(|pair| pair[0] < pair[1]);
    let inside = first_rows.last().is_some_and(|last| *last < count);
    let known = attributes.iter().all(|attribute| (1..=3).contains(&attribute.access_order));
    if first_rows.first() != Some(&0) || !rising || !inside || !known {
        return Err(codes::INVALID_VALUE);
    }
    let attribute = |row| first_rows.partition_point(|first| *first <= row) - 1;
    Ok((0..count).map(|row| attributes[attribute(row)].access_order).collect())
}
