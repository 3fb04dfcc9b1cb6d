//! Writes an array as a .npy file.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use larder_client::admin::Dtype;

/// The header of a .npy file (format 1.0) of a little-endian array in C order.
pub(super) fn header(dtype: Dtype, shape: &[u64]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    // Python writes `(3,)` for one dimension and `(3, 4)` for two.
    let sizes = if shape.len() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let descr = dtype.numpy_descr();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Magic, version and length take 10 bytes; the data begins at a multiple of 64.
    let end = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', end - 10 - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("64 dimensions fit");
    [b"\x93NUMPY\x01\x00", length.to_le_bytes().as_slice(), text.as_bytes()].concat()
}

/// Writes the array to a file. The file appears whole or not at all. `-` is standard output.
pub(super) fn write(path: &Path, dtype: Dtype, shape: &[u64], bytes: &[u8]) -> io::Result<()> {
    let header = header(dtype, shape);
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        out.write_all(&header)?;
        out.write_all(bytes)?;
        return out.flush();
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if path.exists() && !path.is_file() {
        // A pipe or device is written to, not replaced.
        return fs::write(path, [header.as_slice(), bytes].concat());
    }
    let mut file = tempfile::Builder::new().prefix(".larder-").tempfile_in(folder)?;
    file.write_all(&header)?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(permissions())?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// The permissions of a file made by `open(2)`. A temporary file has fewer.
fn permissions() -> fs::Permissions {
    use nix::sys::stat::{Mode, umask};
    use std::os::unix::fs::PermissionsExt;
    let mask = umask(Mode::empty());
    umask(mask);
    fs::Permissions::from_mode(0o666 & !mask.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_equals_that_of_numpy() {
        let bytes = header(Dtype::F32, &[2, 3]);
        assert_eq!(bytes.len() % 64, 0);
        let text = String::from_utf8_lossy(&bytes[10..]);
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  "));
        assert!(text.ends_with(" \n"));
        assert!(String::from_utf8_lossy(&header(Dtype::I64, &[])).contains("'shape': (), "));
        assert!(String::from_utf8_lossy(&header(Dtype::I64, &[7])).contains("'shape': (7,), "));
    }

    #[test]
    fn write_replaces_the_file_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&path, Dtype::U8, &[3], b"abc").unwrap();
        write(&path, Dtype::U8, &[2], b"xy").unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"\x93NUMPY\x01\x00") && bytes.ends_with(b"\nxy"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
