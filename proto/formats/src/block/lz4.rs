//! Frames of LZ4, as Arrow writes them: blocks that may refer to the 64 KiB before them.
//!
//! ```text
//! frame: u32 magic, u8 flags, u8 sizes, [u64 size], [u32 dictionary], u8 checksum, blocks, u32 0
//! block: u32 length (the highest bit: stored as it is), bytes, [u32 checksum]
//! ```
//!
//! Each block is decoded where its bytes belong, so they are not copied again. Checksums are passed
//! over.
//!
//! Thread rule: a plain function.

/// Begins a frame.
const MAGIC: u32 = 0x184D_2204;
/// A block may refer to so many bytes before it.
const WINDOW_BYTES: usize = 64 << 10;

/// Fills the target with the content of a frame. Returns the number of bytes.
///
/// # Errors
/// Why the frame can't be decoded, or has more bytes.
pub(crate) fn decompress(stored: &[u8], target: &mut [u8]) -> Result<usize, String> {
    let mut rest = stored;
    let magic = word(&mut rest)?;
    let flags = take(&mut rest, 2)?[0];
    if magic != MAGIC || flags >> 6 != 1 {
        return Err("is no frame of LZ4".into());
    }
    let is_set = |bit: u8| flags & 1 << bit != 0;
    if is_set(0) {
        return Err("needs a dictionary".into());
    }
    take(&mut rest, if is_set(3) { 9 } else { 1 })?;
    let (is_linked, has_checksums) = (!is_set(5), is_set(4));
    let mut filled = 0;
    loop {
        let head = word(&mut rest)?;
        if head == 0 {
            return Ok(filled);
        }
        let block = take(&mut rest, (head & 0x7FFF_FFFF) as usize)?;
        let (done, free) = target.split_at_mut(filled);
        filled += if head >> 31 == 1 {
            let free = free.get_mut(..block.len()).ok_or("has more bytes than its size says")?;
            free.copy_from_slice(block);
            block.len()
        } else {
            let window =
                if is_linked { done.len().saturating_sub(WINDOW_BYTES) } else { done.len() };
            let decoded = lz4_flex::block::decompress_into_with_dict(block, free, &done[window..]);
            decoded.map_err(|why| why.to_string())?
        };
        if has_checksums {
            word(&mut rest)?;
        }
    }
}

fn word(rest: &mut &[u8]) -> Result<u32, String> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes(*bytes.first_chunk().expect("four bytes")))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], String> {
    let cut = rest.split_at_checked(count);
    let (front, after) = cut.ok_or_else(|| "ends before its last block".to_owned())?;
    *rest = after;
    Ok(front)
}
