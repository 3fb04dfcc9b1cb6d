//! The structures of the Arrow C data interface, made for capsules.
//!
//! ```text
//! capsule ──▶ ArrowSchema or ArrowArray ──▶ Private { owner, children }
//!               └ moved away: its callback is cleared, and the consumer calls it once, in any
//!                 thread
//! ```
//!
//! A structure's children are boxes of its own. A consumer may move a child away too.

use std::{
    ffi::{CStr, CString, c_char, c_void},
    ptr,
    sync::Arc,
};

use pyo3::{ffi, prelude::*, types::PyCapsule};

use super::{ArrayNode, HeldColumns};

/// `ArrowSchema` of the C data interface.
#[repr(C)]
pub(super) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    child_count: i64,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// `ArrowArray` of the C data interface.
#[repr(C)]
pub(super) struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    buffer_count: i64,
    child_count: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

const _: () = assert!(size_of::<ArrowSchema>() == 72);
const _: () = assert!(size_of::<ArrowArray>() == 80);

/// Flag: the field may have nulls. All say so, as those of other writers do.
const IS_NULLABLE: i64 = 2;

/// A structure of the interface.
pub(super) trait Exported: Sized {
    /// The name of its capsules.
    const NAME: &'static CStr;

    /// The callback that releases it, until it was released or moved away.
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Exported for ArrowSchema {
    const NAME: &'static CStr = c"arrow_schema";

    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.release
    }
}

impl Exported for ArrowArray {
    const NAME: &'static CStr = c"arrow_array";

    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.release
    }
}

/// All that a structure points to, except its children's own.
struct Private<T: Exported, O> {
    _owner: O,
    children: Box<[*mut T]>,
}

impl ArrayNode {
    pub(super) fn schema(&self) -> ArrowSchema {
        let owner = (self.format.clone(), self.name.clone(), self.metadata.clone());
        let (format, name) = (owner.0.as_ptr(), owner.1.as_ptr());
        let metadata = owner.2.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
        let children = self.children.iter().map(|child| Box::into_raw(Box::new(child.schema())));
        let (children, child_count, private_data) = private(children.collect(), owner);
        ArrowSchema {
            format,
            name,
            metadata,
            flags: IS_NULLABLE,
            child_count,
            children,
            dictionary: ptr::null_mut(),
            release: Some(release_schema),
            private_data,
        }
    }

    pub(super) fn array(&self, held: &Arc<HeldColumns>) -> ArrowArray {
        let buffers = self.buffers.iter().map(|&at| ptr::with_exposed_provenance(at));
        let mut buffers: Box<[*const c_void]> = buffers.collect();
        let (at, buffer_count) = (buffers.as_mut_ptr(), buffers.len() as i64);
        let children = self.children.iter().map(|child| Box::into_raw(Box::new(child.array(held))));
        let (children, child_count, private_data) =
            private(children.collect(), (buffers, Arc::clone(held)));
        ArrowArray {
            length: self.length,
            null_count: self.null_count,
            offset: 0,
            buffer_count,
            child_count,
            buffers: at,
            children,
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data,
        }
    }
}

/// The children of a structure, their number, and its private data.
fn private<T: Exported, O>(children: Box<[*mut T]>, owner: O) -> (*mut *mut T, i64, *mut c_void) {
    let count = children.len() as i64;
    let holder = Box::leak(Box::new(Private { _owner: owner, children }));
    (holder.children.as_mut_ptr(), count, ptr::from_mut(holder).cast())
}

/// # Safety
/// The structure is live: made by [`ArrayNode::schema`] and not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: by contract, and the type of the owner is the one of `ArrayNode::schema`.
    unsafe {
        release::<ArrowSchema, (CString, CString, Option<Box<[u8]>>)>((*schema).private_data);
        (*schema).release = None;
    }
}

/// # Safety
/// The structure is live: made by [`ArrayNode::array`] and not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: by contract, and the type of the owner is the one of `ArrayNode::array`.
    unsafe {
        release::<ArrowArray, (Box<[*const c_void]>, Arc<HeldColumns>)>((*array).private_data);
        (*array).release = None;
    }
}

/// Releases the children that were not moved away, and the owner.
///
/// # Safety
/// `private_data` was made by [`private`] for these types, and is not used again.
unsafe fn release<T: Exported, O>(private_data: *mut c_void) {
    // SAFETY: by contract. A child is a leaked box. A consumer that moves one away clears its
    // callback, and leaves the box.
    unsafe {
        let holder = Box::from_raw(private_data.cast::<Private<T, O>>());
        for &child in &holder.children {
            release_box(child);
        }
    }
}

/// # Safety
/// A leaked box that is not used again.
unsafe fn release_box<T: Exported>(exported: *mut T) {
    // SAFETY: by contract. The callback is there only while the structure is live.
    unsafe {
        if let Some(release) = (*exported).release() {
            release(exported);
        }
        drop(Box::from_raw(exported));
    }
}

/// A capsule that releases the structure, unless a consumer moved it away.
pub(super) fn capsule<T: Exported>(py: Python<'_>, exported: T) -> PyResult<Bound<'_, PyCapsule>> {
    let exported = ptr::NonNull::from(Box::leak(Box::new(exported)));
    // SAFETY: the pointer is to a leaked box. The destructor alone frees it, in any thread: its
    // owners are plain data and buffers that may be sent.
    let made = unsafe {
        PyCapsule::new_with_pointer_and_destructor(py, exported.cast(), T::NAME, Some(end::<T>))
    };
    if made.is_err() {
        // SAFETY: there is no capsule, so this function has the only pointer.
        unsafe { release_box(exported.as_ptr()) };
    }
    made
}

/// The destructor of a capsule.
///
/// # Safety
/// Only for capsules made by [`capsule`].
unsafe extern "C" fn end<T: Exported>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with the capsule that is being freed, and no consumer
    // renames capsules of this interface.
    unsafe { release_box(ffi::PyCapsule_GetPointer(capsule, T::NAME.as_ptr()).cast::<T>()) }
}
