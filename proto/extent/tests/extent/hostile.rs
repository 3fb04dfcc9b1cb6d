//! Damaged and hostile files: attaching refuses them, without a panic and without allocating by
//! their numbers.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use larder_extent::{Attached, ExtentError, crc};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;

use crate::support::{ID, handed_out, sealed};

fn all_seals() -> SealFlag {
    SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK
}

fn memfd(bytes: &[u8], size: u64, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create("hostile", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let file = File::from(fd);
    file.set_len(size).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    // The kernel may hold a page of it for a moment, for its own reasons.
    let seal = || fcntl(&file, FcntlArg::F_ADD_SEALS(seals));
    let busy = |sealed: &nix::Result<i32>| *sealed == Err(Errno::EBUSY);
    let mut tries = std::iter::repeat_with(seal).inspect(|_| std::thread::yield_now());
    tries.by_ref().take(100_000).find(|sealed| !busy(sealed)).expect("never sealed").unwrap();
    file.into()
}

fn intact() -> Vec<u8> {
    let mut bytes = Vec::new();
    File::from(handed_out(&sealed())).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Replaces the header's checksum by the one that fits the header's bytes.
fn resign(bytes: &mut [u8]) {
    let regions = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
    let end = (64 + 64 * usize::try_from(regions).unwrap()).min(bytes.len());
    bytes[40..44].fill(0);
    let crc = crc::crc32c(&bytes[..end]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
}

fn attach(bytes: &[u8], size: u64) -> Result<Attached, ExtentError> {
    Attached::shared(memfd(bytes, size, all_seals()), ID)
}

/// Attaches an extent of these bytes.
pub(crate) fn attach_whole(bytes: &[u8]) -> Result<Attached, ExtentError> {
    attach(bytes, u64::try_from(bytes.len()).unwrap())
}

#[test]
fn refuses_unsealed_file_and_names_missing_seals() {
    let bytes = intact();
    let size = u64::try_from(bytes.len()).unwrap();
    for missing in [SealFlag::F_SEAL_WRITE, SealFlag::F_SEAL_GROW, SealFlag::F_SEAL_SHRINK] {
        for extra in [SealFlag::empty(), SealFlag::F_SEAL_FUTURE_WRITE, SealFlag::F_SEAL_SEAL] {
            let fd = memfd(&bytes, size, all_seals().difference(missing) | extra);
            let refused = Attached::shared(fd, ID).unwrap_err();
            assert!(matches!(refused, ExtentError::NotSealed { .. }), "{refused}");
            let fd = memfd(&bytes, size, all_seals().difference(missing) | extra);
            let refused = Attached::with_private_views(fd, ID).unwrap_err();
            assert!(matches!(refused, ExtentError::NotSealed { .. }), "{refused}");
        }
    }
    attach_whole(&bytes).unwrap().verify().unwrap();
}

#[test]
fn refuses_files_that_are_not_memfds() {
    let (pipe, _other) = nix::unistd::pipe().unwrap();
    assert!(Attached::shared(pipe, ID).is_err());
    let null = File::open("/dev/zero").unwrap();
    assert!(Attached::with_private_views(null.into(), ID).is_err());
    let program = File::open("/proc/self/exe").unwrap();
    assert!(Attached::shared(program.into(), ID).is_err());
}

#[test]
fn a_file_of_another_size_than_its_regions_is_refused() {
    let bytes = intact();
    let size = u64::try_from(bytes.len()).unwrap();
    for wrong in [size - 4096, size - 1, size + 1, size + 4096, 1 << 36, (1 << 36) + 4096] {
        let kept = usize::try_from(wrong.min(size)).unwrap();
        assert!(attach(&bytes[..kept], wrong).is_err(), "{wrong} bytes");
    }
    for short in [0, 1, 63, 64, 65, 200] {
        assert!(attach_whole(&bytes[..short]).is_err(), "{short} bytes");
    }
}

#[test]
fn refuses_file_with_holes_before_reading_it() {
    let bytes = intact();
    let size = u64::try_from(bytes.len()).unwrap();
    let refused = attach(&bytes[..bytes.len() / 2], size).unwrap_err();
    assert!(refused.to_string().contains("holes"), "{refused}");
}

#[test]
fn a_well_signed_header_with_impossible_numbers_is_refused() {
    let good = intact();
    let hostile = [0, 1, 4095, 4097, u64::from(u32::MAX), 1 << 36, 1 << 40, 1 << 63, u64::MAX];
    for offset in (8..64 + 3 * 64).step_by(8) {
        for number in hostile {
            let mut bytes = good.clone();
            bytes[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
            resign(&mut bytes);
            if bytes == good {
                continue;
            }
            let id_is_wrong = (16..32).contains(&offset);
            match attach_whole(&bytes) {
                Ok(_) => panic!("{number} at {offset} was accepted"),
                Err(refused) => {
                    let named = matches!(refused, ExtentError::WrongId { .. });
                    assert_eq!(named, id_is_wrong, "{number} at {offset}: {refused}");
                }
            }
        }
    }
}

#[test]
fn corrupt_row_is_detected_and_not_returned() {
    let mut bytes = intact();
    let good = attach_whole(&bytes).unwrap();
    let long = usize::try_from(good.row_file_range(0, 7).start).unwrap();
    let short = usize::try_from(good.row_file_range(1, 9).start).unwrap();
    bytes[long + 500] ^= 1;
    bytes[short] ^= 0x80;
    let bad = attach_whole(&bytes).unwrap();
    assert_eq!(bad.verify().unwrap_err().row, 7);
    assert!(!bad.verify_row(0, 7) && bad.verify_row(0, 8) && !bad.verify_row(1, 9));
    assert!(bad.copy_row_verified(0, 7, &mut [0; 1000]).is_err());
    assert!(bad.copy_row_verified(0, 8, &mut [0; 1000]).is_ok());
    assert!(bad.copy_row_verified(1, 9, &mut [0; 8]).is_err());
    for (region, row) in [(0, 7), (1, 9)] {
        assert_ne!(bad.row_crc(region, row), crc::crc32c(bad.row(region, row)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_damaged_header_is_accepted(
        damage in prop::collection::vec((0..256_usize, any::<u8>()), 1..20),
        signed in any::<bool>(),
    ) {
        static GOOD: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(intact);
        let mut bytes = GOOD.clone();
        for (at, value) in damage {
            bytes[at] = value;
        }
        if signed {
            resign(&mut bytes);
        }
        let changed = bytes[..256] != GOOD[..256];
        let accepted = attach_whole(&bytes);
        prop_assert_eq!(accepted.is_err(), changed);
    }
}
