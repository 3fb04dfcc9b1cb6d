//! The tail of a file: a footer, its length in 32 bits, and a mark.
//!
//! Thread rule: pure functions. Non-goals: a missing mark, which each format explains.

use std::ops::Range;

use crate::Fault;

/// Where a footer lies, and its bytes if they are among those that were read.
pub(crate) struct FooterPlace<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Finds the footer by the last bytes of a file without the mark, which begin at `begin`.
///
/// # Errors
/// No length, or one above `max` or beyond the file.
pub(crate) fn find_footer(begin: u64, last: &[u8], max: u64) -> Result<FooterPlace<'_>, Fault> {
    let fault = |why: String| Err(Fault::new("footer", why));
    let Some((rest, length)) = last.split_last_chunk() else {
        return fault("is missing: the file is shorter than the length of a footer".into());
    };
    let (end, length) = (begin + rest.len() as u64, u64::from(u32::from_le_bytes(*length)));
    if length == 0 || length > max {
        return fault(format!("has {length} bytes: from 1 to {max} are read"));
    }
    let Some(start) = end.checked_sub(length) else {
        return fault(format!("has {length} bytes where the file has {end} before its end"));
    };
    let at = start.checked_sub(begin).and_then(|at| usize::try_from(at).ok());
    Ok(FooterPlace { range: start..end, bytes: at.map(|at| &rest[at..]) })
}
