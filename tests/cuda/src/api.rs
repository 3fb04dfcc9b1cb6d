//! The exported symbols of the driver, by theme.
//!
//! Each function checks its arguments, passes the gate, calls the state and stores results.
//! Signatures are those of the driver's header. Pointers in arguments are [`Out`] and [`In`], which
//! hold the only unsafe blocks. Thread rule: any thread may call. Non-goals: any logic.

#![expect(unsafe_code, reason = "exports C symbols and follows the pointers of C callers")]

pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod memory;
pub(crate) mod stream;

use std::cell::Cell;
use std::ffi::{c_char, c_int};

use std::thread::LocalKey;

use crate::codes::{self, Code};

/// A pointer to which a call writes its result. By the driver's contract the C caller passes null
/// or a pointer that is valid for the type.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Stores the result; null is an error.
    fn put(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: the C caller passes a pointer that is valid for a write, and it is not null.
        // Its alignment is unknown.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Swaps the caller's value with the thread's own.
    fn swap(self, own: &'static LocalKey<Cell<T>>) -> Result<(), Code>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: as for `put`, and the caller has set the value.
        let theirs = unsafe { self.0.read_unaligned() };
        self.put(own.replace(theirs))
    }

    /// Stores the result if the caller wants it.
    fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }

    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// Stores a C string in a buffer of `length` bytes and cuts it where the buffer ends.
    fn put_text(self, text: &str, length: c_int) -> Result<(), Code> {
        let length = usize::try_from(length).map_err(|_| codes::INVALID_VALUE)?;
        let room = length.checked_sub(1).ok_or(codes::INVALID_VALUE)?;
        for (index, byte) in text.bytes().take(room).chain([0]).enumerate() {
            Out(self.0.wrapping_add(index)).put(byte.cast_signed())?;
        }
        Ok(())
    }
}

/// A pointer to an argument or to an array of arguments.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads `count` values; null is an error.
    fn read(self, count: usize) -> Result<Vec<T>, Code> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: the C caller passes an array of `count` values, and it is not null. Its alignment
        // is unknown.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }
}

#[cfg(test)]
impl<T> Out<T> {
    pub(crate) fn to(value: &mut T) -> Self {
        Self(value)
    }
}

#[cfg(test)]
impl<T> In<T> {
    pub(crate) fn from(values: &[T]) -> Self {
        Self(values.as_ptr())
    }
}
