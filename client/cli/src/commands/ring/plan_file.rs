//! Plans in files: `ring-HASH.plan`, with the hash of the whole plan in the name.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use larder_client::admin::PLANNED_BYTES_MAX;

use crate::error::{Exit, Failure};

/// Fewest hex digits of a hash that name a plan in a folder.
const HASH_DIGITS_MIN: usize = 8;
const HASH_DIGITS: usize = 32;

/// A plan from a file.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    /// The required beginning of its hash, as the user typed it or by the name of the file.
    pub(super) hash: Option<String>,
}

/// The default file of a plan.
pub(super) fn name(hash: &str) -> PathBuf {
    PathBuf::from(format!("ring-{hash}.plan"))
}

/// Writes a plan. It replaces the content of the file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| Failure::file("write the plan to", path, &error))
}

/// Finds the plan that the user named: by its file, or by its hash or the beginning of that if the
/// file is in `folder`.
pub(super) fn find(typed: &str, folder: &Path) -> Result<PlanFile, Failure> {
    let path = PathBuf::from(typed);
    if path.is_file() {
        let hash = hash_in(&path);
        return Ok(PlanFile { bytes: read(&path)?, path, hash });
    }
    let is_hash = (HASH_DIGITS_MIN..=HASH_DIGITS).contains(&typed.len())
        && typed.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash {
        let failure = Failure::new(Exit::NotFound, format!("there is no plan '{typed}'"));
        return Err(failure
            .why("it is neither a file nor the hash of a plan")
            .hint("larder ring plan makes one, and says where it is kept"));
    }
    let hash = typed.to_lowercase();
    let found = among(folder, &hash)?;
    match &found[..] {
        [path] => Ok(PlanFile { path: path.clone(), bytes: read(path)?, hash: Some(hash) }),
        [] => Err(Failure::new(Exit::NotFound, format!("no plan '{hash}' is kept here"))
            .why(format!("there is no file ring-{hash}*.plan in {}", folder.display()))
            .hint("name the file, or go to the folder where it was planned")),
        several => {
            Err(Failure::new(Exit::Usage, format!("{} plans begin with '{hash}'", several.len()))
                .hint("type more of the hash"))
        }
    }
}

/// Files of plans with this beginning of their hash.
fn among(folder: &Path, hash: &str) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::file("look for plans in", folder, &error);
    let mut found = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if hash_in(&path).is_some_and(|known| known.starts_with(hash)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The hash in the name of a file.
fn hash_in(path: &Path) -> Option<String> {
    let hash = path.file_name()?.to_str()?.strip_prefix("ring-")?.strip_suffix(".plan")?;
    let whole = hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| hash.to_lowercase())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let max = PLANNED_BYTES_MAX as u64;
    fs::File::open(path)
        .and_then(|file| file.take(max + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::file("read the plan in", path, &error))?;
    if bytes.len() > PLANNED_BYTES_MAX {
        let failure = Failure::new(Exit::Usage, format!("{} is no plan", path.display()));
        return Err(failure.why(format!("it is longer than {max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_found_by_its_file_and_by_a_hash_prefix() {
        let folder = tempfile::tempdir().unwrap();
        let hashes = ["ab".repeat(16), format!("{}cd", "ab".repeat(15))];
        for hash in &hashes {
            write(&folder.path().join(name(hash)), hash.as_bytes()).unwrap();
        }
        let by_file = folder.path().join(name(&hashes[0]));
        let kept = find(by_file.to_str().unwrap(), folder.path()).unwrap();
        assert_eq!(
            (kept.bytes, kept.hash),
            (hashes[0].clone().into_bytes(), Some(hashes[0].clone()))
        );
        let kept = find(&hashes[1].to_uppercase(), folder.path()).unwrap();
        assert_eq!(kept.bytes, hashes[1].as_bytes());
        let ambiguous = find(&hashes[0][..10], folder.path()).unwrap_err();
        assert_eq!(ambiguous.exit, Exit::Usage);
        for missing in ["00000000", "nothing.plan", "abc"] {
            assert_eq!(find(missing, folder.path()).unwrap_err().exit, Exit::NotFound, "{missing}");
        }
    }

    #[test]
    fn file_of_another_name_has_no_hash() {
        assert_eq!(hash_in(Path::new("x/my.plan")), None);
        assert_eq!(hash_in(Path::new("ring-12.plan")), None);
    }
}
