//! DLPack 1.1 tensors, made for a capsule.
//!
//! ```text
//! capsule ──▶ Holder { managed: DLManagedTensor[Versioned], owner, shape, strides }
//!               │ consumed: renamed "used_...", the consumer calls the deleter, in any thread
//!               └ not consumed: the capsule's own destructor calls it
//! ```
//!
//! The structures are those of the `dlpack.h` of version 1.1; their sizes are asserted.

use std::{
    ffi::{CStr, c_void},
    mem::size_of,
    ptr::NonNull,
};

use pyo3::{ffi, prelude::*, types::PyCapsule};

use super::dtype::DlType;

/// `DLDeviceType` of host memory.
pub(super) const CPU: i32 = 1;

/// `DLDeviceType` of the memory of an NVIDIA GPU.
pub(super) const CUDA: i32 = 2;

/// The version that is written into versioned tensors.
const VERSION: [u32; 2] = [1, 1];

/// Flag: the tensor is a copy without another owner.
const IS_COPIED: u64 = 1 << 1;

/// `DLTensor`.
#[repr(C)]
pub(super) struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    /// In elements.
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`: the form for consumers from before DLPack 1.0.
#[repr(C)]
pub(super) struct Unversioned {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(super) struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: DlTensor,
}

const _: () = assert!(size_of::<DlTensor>() == 48);
const _: () = assert!(size_of::<Unversioned>() == 64);
const _: () = assert!(size_of::<Versioned>() == 80);

/// A tensor to export.
pub(super) struct Export<'a, O> {
    /// The address of its first element.
    pub(super) address: u64,
    /// Type and number of the device.
    pub(super) device: (i32, i32),
    /// Keeps the elements at their address.
    pub(super) owner: O,
    pub(super) dtype: DlType,
    pub(super) shape: &'a [i64],
    /// Whether it is a copy made for this export.
    pub(super) copied: bool,
}

/// One of the two forms of a managed tensor.
pub(super) trait Managed: Sized {
    /// The capsule's name until the tensor is consumed.
    const NAME: &'static CStr;

    /// Its deleter drops a holder with an owner `O`.
    fn new<O>(tensor: DlTensor, copied: bool) -> Self;
}

impl Managed for Unversioned {
    const NAME: &'static CStr = c"dltensor";

    fn new<O>(tensor: DlTensor, _copied: bool) -> Self {
        Self { tensor, context: std::ptr::null_mut(), deleter: Some(release::<Self, O>) }
    }
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";

    fn new<O>(tensor: DlTensor, copied: bool) -> Self {
        let flags = if copied { IS_COPIED } else { 0 };
        let context = std::ptr::null_mut();
        Self { version: VERSION, context, deleter: Some(release::<Self, O>), flags, tensor }
    }
}

/// A managed tensor and all that it points to.
#[repr(C)]
struct Holder<T, O> {
    /// First, so that its address is the holder's.
    managed: T,
    owner: O,
    /// Shape, then strides.
    lengths: Box<[i64]>,
}

/// A capsule with the tensor in the form `T`.
pub(super) fn capsule<'py, T: Managed, O: Send + 'static>(
    py: Python<'py>,
    export: Export<'_, O>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let Export { address, device, owner, dtype, shape, copied } = export;
    let dimensions = shape.len();
    let mut lengths: Box<[i64]> = shape.iter().copied().chain(element_strides(shape)).collect();
    let tensor = DlTensor {
        data: std::ptr::with_exposed_provenance_mut(usize::try_from(address).expect("64 bits")),
        device_type: device.0,
        device_id: device.1,
        dimensions: i32::try_from(dimensions).expect("a tensor of few dimensions"),
        code: dtype.code,
        bits: dtype.bits,
        lanes: 1,
        shape: lengths.as_mut_ptr(),
        strides: lengths.as_mut_ptr().wrapping_add(dimensions),
        byte_offset: 0,
    };
    let holder = Box::new(Holder { managed: T::new::<O>(tensor, copied), owner, lengths });
    let holder = NonNull::from(Box::leak(holder));
    // SAFETY: the pointer is to a live holder, which is released once: by the consumer, which
    // renames the capsule, or by the destructor, which touches only a capsule that was not renamed.
    // Both may happen in any thread, because a holder is plain data and an owner that is `Send`.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(
            py,
            holder.cast(),
            T::NAME,
            Some(unconsumed::<T, O>),
        )
    };
    if made.is_err() {
        // SAFETY: there is no capsule, so this function has the only pointer.
        unsafe { release::<T, O>(holder.cast().as_ptr()) };
    }
    made
}

/// Strides in C order, in elements.
fn element_strides(shape: &[i64]) -> impl Iterator<Item = i64> + '_ {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().map(|&length| length.max(1)).product())
}

/// The deleter: drops the tensor's owner.
///
/// # Safety
/// `managed` must come from [`capsule`] and must not be used again.
unsafe extern "C" fn release<T, O>(managed: *mut T) {
    // SAFETY: `capsule` leaked a `Box<Holder<T, O>>` with this as its first field, and by contract
    // it is released once.
    drop(unsafe { Box::from_raw(managed.cast::<Holder<T, O>>()) });
}

/// The destructor of the capsule: releases a tensor without a consumer.
///
/// # Safety
/// Only for capsules made by [`capsule`].
unsafe extern "C" fn unconsumed<T: Managed, O>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with the capsule that is being freed. A capsule of this
    // name holds a pointer to a live holder; after consumption it has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, T::NAME.as_ptr()) == 1 {
            release::<T, O>(ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast());
        }
    }
}
