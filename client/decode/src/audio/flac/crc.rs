//! The two checksums of FLAC, by table.
//!
//! Thread rule: plain functions. Non-goals: other polynomials.

const CRC8: [u16; 256] = table(0x07 << 8);
const CRC16: [u16; 256] = table(0x8005);

/// The checksums of all bytes, for a polynomial in the upper bits.
const fn table(polynomial: u16) -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ (polynomial * (crc >> 15));
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

pub(super) fn crc8(bytes: &[u8]) -> u8 {
    let step = |crc: u8, byte| (CRC8[usize::from(crc ^ byte)] >> 8) as u8;
    bytes.iter().fold(0, |crc, &byte| step(crc, byte))
}

pub(super) fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, byte: u8| crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)];
    bytes.iter().fold(0, |crc, &byte| step(crc, byte))
}
