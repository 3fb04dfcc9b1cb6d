//! Names of files inside a dataset.

use larder_base::limits;

use crate::shown;

/// Checks a file name that stands in another file: a relative path with `/` that stays inside its
/// folder. Returns the reason against it as a clause.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let limit = limits::URI_BYTES_MAX;
    if name.len() > limit {
        return Err(format!("'{}' is longer than {limit} bytes", shown(name)));
    }
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    if name.contains(['\\', '\0']) || !name.split('/').all(is_part) {
        return Err(format!("'{}' is not a path inside the folder", shown(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_the_folder_are_accepted() {
        for good in ["a", "0-0/shard.00000.mds", "..a/b..", "a b/ü"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in ["", "/a", "a/", "a//b", ".", "./a", "..", "../a", "a/../b", "a\\b", "a\0"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        assert!(check(&"a".repeat(limits::URI_BYTES_MAX + 1)).is_err());
    }
}
