//! The header of an extent, as bytes. Little-endian.
//!
//! ```text
//! offset width  fixed part                    offset width  one entry per region, from 64
//!      0     8  magic "LARDEREX"                   0     4  kind: 1 rows, 2 blocks
//!      8     4  layout version                     4     4  zero
//!     12     4  region count                       8     8  offset in the file
//!     16    16  extent id                         16     8  bytes
//!     32     8  bytes of the file                 24     8  rows (blocks: 0)
//!     40     4  CRC32C of the header,             32     8  row bytes (blocks: 0)
//!               taken with zero here              40     8  stride bytes (blocks: 0)
//!     44    20  zero                              48     8  offset of the checksum table
//!     64        end of the fixed part             56     8  checksums in the table
//! ```

use crate::crc::crc32c;
use crate::layout::{ExtentLayout, PlacedRegion, REGIONS_MAX, Region};
use crate::{ExtentError, ExtentId};

const MAGIC: [u8; 8] = *b"LARDEREX";
const VERSION: u32 = 1;
const KIND_ROWS: u32 = 1;
const KIND_BLOCKS: u32 = 2;

/// Bytes before the region entries.
pub(crate) const FIXED_BYTES: usize = 64;
const ENTRY_BYTES: usize = 64;
const CRC_OFFSET: usize = 40;
const RESERVED_OFFSET: usize = 44;
const RESERVED_BYTES: usize = 20;

const _: () = assert!(CRC_OFFSET == 8 + 4 + 4 + 16 + 8);
const _: () = assert!(RESERVED_OFFSET == CRC_OFFSET + 4);
const _: () = assert!(FIXED_BYTES == RESERVED_OFFSET + RESERVED_BYTES);
const _: () = assert!(ENTRY_BYTES == 4 + 4 + 7 * 8);
const _: () = assert!(FIXED_BYTES + REGIONS_MAX * ENTRY_BYTES <= 257 * 1024);

/// Returns the bytes of a header with `regions` entries.
pub(super) fn bytes(regions: usize) -> u64 {
    let bytes = FIXED_BYTES + regions * ENTRY_BYTES;
    u64::try_from(bytes).expect("a usize has 64 bits here")
}

/// Encodes the header of the extent `id` laid out as `layout`.
pub(crate) fn encode(id: ExtentId, layout: &ExtentLayout) -> Vec<u8> {
    let count = u32::try_from(layout.placed().len()).expect("a layout has at most 4096 regions");
    let mut header = Vec::with_capacity(FIXED_BYTES + layout.placed().len() * ENTRY_BYTES);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(id.as_bytes());
    header.extend_from_slice(&layout.total_bytes().to_le_bytes());
    header.extend_from_slice(&[0; 4 + RESERVED_BYTES]);
    for placed in layout.placed() {
        encode_entry(placed, &mut header);
    }
    let crc = crc32c(&header);
    header[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
    header
}

fn encode_entry(placed: &PlacedRegion, header: &mut Vec<u8>) {
    let (kind, [rows, row_bytes, stride_bytes]) = match placed.region {
        Region::Rows { rows, row_bytes, stride_bytes } => {
            (KIND_ROWS, [rows, row_bytes, stride_bytes])
        }
        Region::Blocks { .. } => (KIND_BLOCKS, [0; 3]),
    };
    header.extend_from_slice(&kind.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    for number in [
        placed.offset,
        placed.bytes,
        rows,
        row_bytes,
        stride_bytes,
        placed.crc_offset,
        placed.units,
    ] {
        header.extend_from_slice(&number.to_le_bytes());
    }
}

/// The fixed part, which is enough to know the header's length.
pub(crate) struct FixedHeader {
    pub(crate) id: ExtentId,
    regions: usize,
}

impl FixedHeader {
    /// Reads the fixed part, before its checksum can be checked.
    pub(crate) fn decode(bytes: &[u8; FIXED_BYTES]) -> Result<Self, ExtentError> {
        if bytes[..8] != MAGIC {
            return Err(ExtentError::NotAnExtent { reason: "it does not begin with the magic" });
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(ExtentError::UnknownVersion { found: version, known: VERSION });
        }
        let regions = usize::try_from(u32_at(bytes, 12)).unwrap_or(usize::MAX);
        if regions > REGIONS_MAX {
            return Err(ExtentError::TooManyRegions { count: regions, limit: REGIONS_MAX });
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        Ok(Self { id: ExtentId::from_bytes(id), regions })
    }

    pub(crate) fn header_bytes(&self) -> usize {
        FIXED_BYTES + self.regions * ENTRY_BYTES
    }
}

/// Reads a whole header. Computes the layout anew from the listed regions and accepts the header
/// only if it equals, byte for byte, the header of that layout.
pub(crate) fn decode(fixed: &FixedHeader, header: &[u8]) -> Result<ExtentLayout, ExtentError> {
    let regions = header[FIXED_BYTES..]
        .chunks_exact(ENTRY_BYTES)
        .map(decode_region)
        .collect::<Result<Vec<_>, _>>()?;
    let layout = ExtentLayout::new(&regions)?;
    if encode(fixed.id, &layout) != header {
        return Err(ExtentError::NotAnExtent {
            reason: "its header is corrupt: checksum or offsets do not fit its regions",
        });
    }
    Ok(layout)
}

fn decode_region(entry: &[u8]) -> Result<Region, ExtentError> {
    match u32_at(entry, 0) {
        KIND_ROWS => Ok(Region::Rows {
            rows: u64_at(entry, 24),
            row_bytes: u64_at(entry, 32),
            stride_bytes: u64_at(entry, 40),
        }),
        KIND_BLOCKS => Ok(Region::Blocks { bytes: u64_at(entry, 16) }),
        _ => Err(ExtentError::NotAnExtent { reason: "it has a region of no known kind" }),
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}
