//! The file behind an extent: creation, sealing, reopening, its mappings, and the check of files
//! from other processes.

pub(crate) mod map;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};

use crate::ExtentError;

/// `MFD_NOEXEC_SEAL`: the file can never be made executable. Since Linux 6.3.
const MFD_NOEXEC_SEAL: u32 = 0x0008;

/// The seals that fix the file's bytes and length.
const IMMUTABLE: SealFlag =
    SealFlag::F_SEAL_WRITE.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SHRINK);

/// Creates a memory file of `bytes` zero bytes that no other process can reach yet.
pub(crate) fn create(bytes: u64) -> Result<File, ExtentError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd =
        match memfd_create("larder-extent", flags | MFdFlags::from_bits_retain(MFD_NOEXEC_SEAL)) {
            Err(Errno::EINVAL) => memfd_create("larder-extent", flags),
            made => made,
        }
        .map_err(ExtentError::os("memfd_create"))?;
    // A memfd's inode is open to every user. The seals protect the contents; this mode also keeps
    // other users from opening the file for writing.
    fchmod(&fd, Mode::from_bits_retain(0o444)).map_err(ExtentError::os("fchmod"))?;
    let file = File::from(fd);
    file.set_len(bytes).map_err(ExtentError::os("ftruncate"))?;
    Ok(file)
}

/// Makes `file` immutable for good. The kernel refuses (EBUSY) while a writable mapping exists.
pub(crate) fn seal(file: &File) -> Result<(), ExtentError> {
    let seals = IMMUTABLE | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals)).map_err(ExtentError::os("sealing"))?;
    Ok(())
}

/// Opens a fresh read-only description of the file behind `fd`. Older kernels refuse even a
/// read-only mapping through a writable description of a sealed file. The kernel also tells by the
/// number of descriptions whether other processes still hold the file.
pub(crate) fn reopen_read_only(fd: BorrowedFd<'_>) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Refuses a file that can still change or shrink.
pub(crate) fn check_sealed(file: &File) -> Result<(), ExtentError> {
    let bits = match fcntl(file.as_fd(), FcntlArg::F_GET_SEALS) {
        Ok(bits) => bits,
        Err(Errno::EINVAL) => 0,
        Err(errno) => return Err(ExtentError::os("F_GET_SEALS")(errno)),
    };
    let missing = IMMUTABLE.difference(SealFlag::from_bits_retain(bits));
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter_names().map(|(name, _)| name.trim_start_matches("F_SEAL_"));
    let missing = names.map(str::to_lowercase).collect::<Vec<_>>().join(", ");
    Err(ExtentError::NotSealed { missing })
}

#[cfg(test)]
mod tests {
    use super::map::PopulatedMap;
    use super::{check_sealed, create, seal};
    use crate::{ExtentError, PagePreference};
    use std::io::ErrorKind;

    #[test]
    fn refuses_to_seal_while_a_writable_mapping_exists() {
        let file = create(8192).unwrap();
        let map = PopulatedMap::new(&file, PagePreference::Auto).unwrap();
        let Err(ExtentError::Os { source, .. }) = seal(&file) else { panic!("sealed") };
        assert_eq!(source.kind(), ErrorKind::ResourceBusy);
        drop(map);
        seal(&file).unwrap();
        check_sealed(&file).unwrap();
    }

    #[test]
    fn error_names_the_missing_seals() {
        let refused = check_sealed(&create(4096).unwrap()).unwrap_err().to_string();
        assert!(refused.contains("write, grow, shrink") || refused.contains("shrink, grow, write"));
    }
}
