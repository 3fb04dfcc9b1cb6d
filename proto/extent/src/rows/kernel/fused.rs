//! Copies and hashes in one pass over the registers: each byte is read once.
//!
//! A CRC is the remainder of a polynomial. Two carry-less multiplications with the constants of a
//! distance move sixteen bytes forward by that distance, to be added (xor) to the bytes there.
//! Sixteen lanes of 16 bytes walk over the row, 256 bytes a step, and are folded into one at its
//! end. The processor's own CRC32C instruction takes in the remainder (V. Gopal et al., *Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ*, 2009). The multiplications run during the
//! copy's waits for memory, while a separate hash would begin only after the copy.
//!
//! The copy may go past the cache, by stores that neither read the target first nor keep it.
//!
//! Thread rule: plain functions. Non-goals: rows shorter than a step, other polynomials, and
//! processors without 64-byte vectors, where `crc-fast` hashes the copy.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm512_broadcast_i32x4,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::{Ahead, STEP_BYTES, streamed};

/// Bytes of a vector, four of which are a step.
const VECTOR_BYTES: usize = 64;

const ROW_BYTES_MIN: usize = STEP_BYTES;

/// Returns whether rows of this length can be copied and hashed here.
#[inline]
pub(crate) fn is_for(bytes: usize) -> bool {
    bytes >= ROW_BYTES_MIN
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// The constants that move 16 bytes by some distance: for the first and for the second half.
#[derive(Clone, Copy)]
struct Distance(u64, u64);

impl Distance {
    const fn bytes(bytes: u32) -> Self {
        Self(power(bytes * 8 + 31), power(bytes * 8 - 33))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn as_vector(self) -> __m128i {
        _mm_set_epi64x(self.1.cast_signed(), self.0.cast_signed())
    }
}

const STEP: Distance = Distance::bytes(256);
const VECTOR: Distance = Distance::bytes(64);
const LANES: [Distance; 3] = [Distance::bytes(48), Distance::bytes(32), Distance::bytes(16)];

/// Returns `x` to this power modulo the polynomial of CRC32C, with its bits reversed as in CRC32C.
const fn power(exponent: u32) -> u64 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut remainder = 1_u32 << 31;
    let mut done = 0;
    while done < exponent {
        let carry = remainder & 1;
        remainder = (remainder >> 1) ^ (carry * POLYNOMIAL);
        done += 1;
    }
    remainder as u64
}

/// Returns whether rows of this length can be copied past the cache and hashed here. The part of a
/// row after the first vector boundary must have at least a step.
#[inline]
pub(crate) fn streams(bytes: usize) -> bool {
    is_for(bytes.saturating_sub(VECTOR_BYTES))
}

/// Copies, and returns the CRC32C of the copied bytes, taken in the registers.
///
/// # Panics
/// If the lengths differ, or [`is_for`] is false of them.
#[inline]
pub(crate) fn copy_hashed(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    assert!(is_for(source.len()) && source.len() == target.len(), "copying what can't be");
    // SAFETY: `is_for` found every feature that the function is compiled for.
    unsafe { copy_hashed_by_vectors::<false>(BEGIN, source, target, ahead) }
}

/// As [`copy_hashed`], past the cache.
///
/// # Panics
/// If the lengths differ, or [`streams`] is false of them.
pub(crate) fn stream_hashed(source: &[u8], target: &mut [u8], ahead: Ahead<'_>) -> u32 {
    assert!(streams(source.len()) && source.len() == target.len(), "streaming what can't be");
    let unaligned = target.as_ptr().align_offset(VECTOR_BYTES);
    let (source_head, source) = source.split_at(unaligned);
    let (target_head, target) = target.split_at_mut(unaligned);
    target_head.copy_from_slice(source_head);
    // SAFETY: `streams` found every feature that the functions are compiled for, and at least a
    // step is left.
    let crc = unsafe {
        let state = take_in(BEGIN.into(), source_head);
        copy_hashed_by_vectors::<true>(state, source, target, ahead)
    };
    streamed();
    crc
}

/// The CRC state before the first byte: all 32 bits set.
const BEGIN: u32 = u32::MAX;

/// Copies the bytes after those that brought the CRC to `state`, and returns the CRC32C of all of
/// them. With `PAST` the target must lie on a multiple of a vector, and the caller must call
/// `streamed` before any code reads the target.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn copy_hashed_by_vectors<const PAST: bool>(
    state: u32,
    source: &[u8],
    target: &mut [u8],
    ahead: Ahead<'_>,
) -> u32 {
    let (steps, rest) = source.as_chunks::<STEP_BYTES>();
    let (target_steps, target_rest) = target.as_chunks_mut::<STEP_BYTES>();
    let mut pairs = steps.iter().zip(target_steps);
    let (from, to) = pairs.next().expect("a row of a step and more");
    ahead.ask(0, STEP_BYTES);
    let mut lanes = copy_step::<PAST>(from, to);
    // The state so far counts as added to the next 32 bits.
    let before = _mm_cvtsi32_si128(state.cast_signed());
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(before));
    let step = _mm512_broadcast_i32x4(STEP.as_vector());
    for ((from, to), at) in pairs.zip((STEP_BYTES..).step_by(STEP_BYTES)) {
        ahead.ask(at, STEP_BYTES);
        let next = copy_step::<PAST>(from, to);
        for (lane, next) in lanes.iter_mut().zip(next) {
            *lane = fold(*lane, step, next);
        }
    }
    let vector = _mm512_broadcast_i32x4(VECTOR.as_vector());
    let [first, others @ ..] = lanes;
    let mut folded = others.into_iter().fold(first, |sum, next| fold(sum, vector, next));
    ahead.ask(source.len() - rest.len(), rest.len());
    let (vectors, rest) = rest.as_chunks::<VECTOR_BYTES>();
    let (target_vectors, target_rest) = target_rest.as_chunks_mut::<VECTOR_BYTES>();
    for (from, to) in vectors.iter().zip(target_vectors) {
        folded = fold(folded, vector, copy_vector::<PAST>(from, to));
    }
    target_rest.copy_from_slice(rest);
    !take_in(remainder_of(folded), rest)
}

/// Copies a step and returns it. Written out, because the compiler turns a loop into a call of
/// `memcpy`, across which no vector stays in its register.
#[inline]
#[target_feature(enable = "avx512f")]
fn copy_step<const PAST: bool>(from: &[u8; STEP_BYTES], to: &mut [u8; STEP_BYTES]) -> [__m512i; 4] {
    let ([from_0, from_1, from_2, from_3], [to_0, to_1, to_2, to_3]) =
        (from.as_chunks().0, to.as_chunks_mut().0)
    else {
        unreachable!("a step is four vectors");
    };
    [
        copy_vector::<PAST>(from_0, to_0),
        copy_vector::<PAST>(from_1, to_1),
        copy_vector::<PAST>(from_2, to_2),
        copy_vector::<PAST>(from_3, to_3),
    ]
}

#[inline]
#[target_feature(enable = "avx512f")]
fn copy_vector<const PAST: bool>(
    from: &[u8; VECTOR_BYTES],
    to: &mut [u8; VECTOR_BYTES],
) -> __m512i {
    // SAFETY: both are as long as a vector. Plain loads and stores may lie anywhere; a streaming
    // store's target lies on a multiple of the vector's length.
    unsafe {
        let copied = _mm512_loadu_si512(from.as_ptr().cast());
        match PAST {
            true => _mm512_stream_si512(to.as_mut_ptr().cast(), copied),
            false => _mm512_storeu_si512(to.as_mut_ptr().cast(), copied),
        }
        copied
    }
}

/// Moves four lanes by a distance and adds them to `there`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(lanes: __m512i, distance: __m512i, there: __m512i) -> __m512i {
    const XOR_OF_THREE: i32 = 0x96;
    let first = _mm512_clmulepi64_epi128::<0x00>(lanes, distance);
    let second = _mm512_clmulepi64_epi128::<0x11>(lanes, distance);
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(first, second, there)
}

/// Returns the CRC state after four lanes.
#[inline]
#[target_feature(enable = "avx512f,pclmulqdq,sse4.2")]
fn remainder_of(lanes: __m512i) -> u64 {
    let moved = |lane: __m128i, distance: Distance| {
        let distance = distance.as_vector();
        let first = _mm_clmulepi64_si128::<0x00>(lane, distance);
        _mm_xor_si128(first, _mm_clmulepi64_si128::<0x11>(lane, distance))
    };
    let sum = _mm_xor_si128(
        _mm_xor_si128(
            moved(_mm512_extracti32x4_epi32::<0>(lanes), LANES[0]),
            moved(_mm512_extracti32x4_epi32::<1>(lanes), LANES[1]),
        ),
        _mm_xor_si128(
            moved(_mm512_extracti32x4_epi32::<2>(lanes), LANES[2]),
            _mm512_extracti32x4_epi32::<3>(lanes),
        ),
    );
    let first = _mm_crc32_u64(0, _mm_extract_epi64::<0>(sum).cast_unsigned());
    _mm_crc32_u64(first, _mm_extract_epi64::<1>(sum).cast_unsigned())
}

/// Returns the CRC state after some more bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
#[expect(clippy::cast_possible_truncation, reason = "a state has 32 bits")]
fn take_in(state: u64, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let state =
        words.iter().fold(state, |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state as u32, |state, &byte| _mm_crc32_u8(state, byte))
}
