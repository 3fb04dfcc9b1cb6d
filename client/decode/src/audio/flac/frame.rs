//! One frame of FLAC: its header, a subframe for each channel, and a checksum (RFC 9639, 9).
//!
//! ```text
//!  sync (14)  reserved (1)  blocks vary (1)  size (4)  rate (4)  channels (4)  depth (3)
//!  reserved (1)  number (8 to 56)  size (0, 8 or 16)  rate (0, 8 or 16)  CRC-8 (8)
//!  subframes, padded to whole bytes  CRC-16 (16)
//! ```
//!
//! Samples are 64 bits wide: a difference of two channels of 32 bits has 33. Sums wrap, since a
//! damaged frame may have any residuals. Its checksum is compared after it was decoded.
//!
//! Thread rule: plain functions. Non-goals: the rate and the number in a frame's header.

use super::Damage;
use super::bits::Bits;
use super::crc::{crc8, crc16};

const RESERVED: Damage = "a frame has reserved bits";

/// The weights of the fixed predictors, by order (9.2.5). The last one is that of the last sample.
const FIXED: [&[i64]; 5] = [&[], &[1], &[-1, 2], &[1, -3, 3], &[-1, 4, -6, 4]];

/// What a frame's header says of its samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Samples of each channel.
    pub(super) size: usize,
    pub(super) channels: u32,
    /// Bits of a sample.
    pub(super) depth: u32,
    /// Of two channels, the one that is a difference.
    side: Option<Side>,
    /// Bytes of the frame.
    pub(super) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Mid,
}

impl Frame {
    /// Decodes the frame at the begin of `bytes`. Its channels follow each other in `samples`.
    /// `depth` is that of the stream.
    pub(super) fn decode(bytes: &[u8], depth: u32, samples: &mut Vec<i64>) -> Result<Self, Damage> {
        let mut bits = Bits::new(bytes);
        let mut frame = Self::header(&mut bits, bytes, depth)?;
        samples.resize(frame.size * frame.channels as usize, 0);
        for (channel, samples) in samples.chunks_exact_mut(frame.size).enumerate() {
            let is_side = match frame.side {
                Some(Side::Right) => channel == 0,
                Some(_) => channel == 1,
                None => false,
            };
            subframe(&mut bits, frame.depth + u32::from(is_side), samples)?;
        }
        let end = bits.bytes_read();
        let crc = bytes.get(end..).and_then(|rest| rest.first_chunk()).ok_or("it is cut off")?;
        if crc16(&bytes[..end]) != u16::from_be_bytes(*crc) {
            return Err("a frame does not match its checksum");
        }
        if let Some(side) = frame.side {
            let (first, second) = samples.split_at_mut(frame.size);
            first.iter_mut().zip(second).for_each(|(first, second)| side.undo(first, second));
        }
        frame.bytes = end + 2;
        Ok(frame)
    }

    fn header(bits: &mut Bits<'_>, bytes: &[u8], depth: u32) -> Result<Self, Damage> {
        if bits.small(15)? != 0b111_1111_1111_1100 {
            return Err("a frame does not begin where the one before ends");
        }
        let _blocks_vary = bits.small(1)?;
        let (size, rate) = (bits.small(4)?, bits.small(4)?);
        let (channels, side) = match bits.small(4)? {
            8 => (2, Some(Side::Left)),
            9 => (2, Some(Side::Right)),
            10 => (2, Some(Side::Mid)),
            count @ 0..8 => (count + 1, None),
            _ => return Err(RESERVED),
        };
        let depth = match bits.small(3)? {
            0 => depth,
            code @ (1 | 2 | 4..=7) => [0, 8, 12, 0, 16, 20, 24, 32][code as usize],
            _ => return Err(RESERVED),
        };
        if bits.small(1)? != 0 {
            return Err(RESERVED);
        }
        // The number is coded like UTF-8: leading ones count its bytes.
        let more = match (bits.small(8)? << 24).leading_ones() {
            0 => 0,
            1 | 8.. => return Err("a frame has no number"),
            ones => ones - 1,
        };
        for _ in 0..more {
            bits.small(8)?;
        }
        let size = match size {
            0 => return Err(RESERVED),
            1 => 192,
            2..=5 => 144 << size,
            6 => bits.small(8)? + 1,
            7 => bits.small(16)? + 1,
            _ => 1 << size,
        };
        match rate {
            12 => bits.small(8)?,
            13 | 14 => bits.small(16)?,
            15 => return Err(RESERVED),
            _ => 0,
        };
        let end = bits.bytes_read();
        if u32::from(crc8(&bytes[..end])) != bits.small(8)? {
            return Err("a frame's header does not match its checksum");
        }
        Ok(Self { size: size as usize, channels, depth, side, bytes: 0 })
    }
}

impl Side {
    /// Makes left and right of what a frame stores (4.2).
    fn undo(self, first: &mut i64, second: &mut i64) {
        match self {
            Self::Left => *second = first.wrapping_sub(*second),
            Self::Right => *first = first.wrapping_add(*second),
            Self::Mid => {
                // The lowest bit of the sum was dropped. It equals that of the difference.
                let sum = first.wrapping_mul(2) | (*second & 1);
                (*first, *second) =
                    (sum.wrapping_add(*second) >> 1, sum.wrapping_sub(*second) >> 1);
            }
        }
    }
}

fn subframe(bits: &mut Bits<'_>, depth: u32, samples: &mut [i64]) -> Result<(), Damage> {
    if bits.unsigned(1)? != 0 {
        return Err(RESERVED);
    }
    let kind = bits.small(6)? as usize;
    let wasted = match bits.unsigned(1)? {
        0 => 0,
        _ => bits.unary()? + 1,
    };
    let wasted = u32::try_from(wasted).unwrap_or(u32::MAX);
    let depth = depth.checked_sub(wasted).filter(|&depth| depth > 0);
    let depth = depth.ok_or("a sample has no bits")?;
    match kind {
        0 => samples.fill(bits.signed(depth)?),
        1 => raw(bits, depth, samples)?,
        8..=12 => {
            let weights = FIXED[kind - 8];
            warm_up(bits, depth, weights.len(), samples)?;
            residual(bits, weights.len(), samples)?;
            predict(weights, 0, samples);
        }
        32..=63 => {
            let order = kind - 31;
            warm_up(bits, depth, order, samples)?;
            let precision = bits.small(4)? + 1;
            // In two's complement, but a negative one has no meaning.
            let shift = bits.small(5)?;
            if precision == 16 || shift >= 16 {
                return Err(RESERVED);
            }
            let mut weights = [0; 32];
            raw(bits, precision, &mut weights[..order])?;
            weights[..order].reverse();
            residual(bits, order, samples)?;
            predict(&weights[..order], shift, samples);
        }
        _ => return Err(RESERVED),
    }
    if wasted > 0 {
        samples.iter_mut().for_each(|sample| *sample <<= wasted);
    }
    Ok(())
}

fn raw(bits: &mut Bits<'_>, depth: u32, samples: &mut [i64]) -> Result<(), Damage> {
    for sample in samples {
        *sample = bits.signed(depth)?;
    }
    Ok(())
}

/// The samples before the first one that is predicted.
fn warm_up(
    bits: &mut Bits<'_>,
    depth: u32,
    order: usize,
    samples: &mut [i64],
) -> Result<(), Damage> {
    raw(bits, depth, samples.get_mut(..order).ok_or("a frame is shorter than its predictor")?)
}

/// The differences from the predicted samples, from sample `order` on (9.2.7).
fn residual(bits: &mut Bits<'_>, order: usize, samples: &mut [i64]) -> Result<(), Damage> {
    let parameter_bits = match bits.unsigned(2)? {
        0 => 4,
        1 => 5,
        _ => return Err(RESERVED),
    };
    let partitions = 1 << bits.unsigned(4)?;
    let size = samples.len() / partitions;
    if !samples.len().is_multiple_of(partitions) || size < order {
        return Err("a frame's parts have no equal size");
    }
    let mut begin = order;
    for end in (size..=samples.len()).step_by(size.max(1)) {
        let part = &mut samples[begin..end];
        begin = end;
        let parameter = bits.small(parameter_bits)?;
        if parameter + 1 == 1 << parameter_bits {
            // Escaped: plain numbers.
            let depth = bits.small(5)?;
            raw(bits, depth, part)?;
            continue;
        }
        for sample in part {
            let value = bits.unary()? << parameter | bits.unsigned(parameter)?;
            *sample = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
        }
    }
    Ok(())
}

/// Adds to each residual the weighted sum of the samples before it. The last weight is that of the
/// last sample.
fn predict(weights: &[i64], shift: u32, samples: &mut [i64]) {
    match weights.len() {
        0..=4 => predict_padded::<4>(weights, shift, samples),
        5..=8 => predict_padded::<8>(weights, shift, samples),
        9..=12 => predict_padded::<12>(weights, shift, samples),
        _ => predict_padded::<32>(weights, shift, samples),
    }
}

/// Predicts with `N` weights, the first ones zeros: a loop of fixed length is faster.
fn predict_padded<const N: usize>(weights: &[i64], shift: u32, samples: &mut [i64]) {
    let mut padded = [0; N];
    padded[N - weights.len()..].copy_from_slice(weights);
    for at in weights.len()..N.min(samples.len()) {
        let (before, rest) = samples.split_at_mut(at);
        let sum = weighted(&before[at - weights.len()..], weights);
        rest[0] = rest[0].wrapping_add(sum >> shift);
    }
    for at in N..samples.len() {
        let (before, rest) = samples.split_at_mut(at);
        let before: &[i64; N] = before.last_chunk().expect("`N` samples");
        rest[0] = rest[0].wrapping_add(weighted(before, &padded) >> shift);
    }
}

#[inline]
fn weighted(samples: &[i64], weights: &[i64]) -> i64 {
    let products = samples.iter().zip(weights).map(|(a, b)| a.wrapping_mul(*b));
    products.fold(0, i64::wrapping_add)
}
