//! The budget of a node's shards: its memory limit, less its own overhead, and the share of it that
//! the configuration asks for. And the number of shards, since each is an open file and a map.

use std::fs;
use std::path::Path;

use larder_base::{Bytes, Error, ErrorKind, limits};
use larder_extent::{MemoryLimit, MemoryLimitError, available_memory};
use larder_store::Budget;
use nix::sys::resource::{Resource, getrlimit};

use crate::config::MemorySetting;

/// On a machine without cgroup limits, a node takes one part in this many unless told otherwise, as
/// a tmpfs does. In a cgroup it takes all of the group's memory, which was set aside for it.
const UNTOLD_SHARE_OF_MACHINE: u64 = 2;

/// One in this many of the files that a process may have open, and of its maps, is for shards. The
/// others are for clients and their threads, for reads from the origin, and for operators.
const SHARDS_SHARE: u64 = 2;

/// Why there is no budget.
#[derive(Debug, thiserror::Error)]
pub(super) enum BudgetError {
    /// The memory limit is unknown.
    #[error(transparent)]
    Limit(#[from] MemoryLimitError),
    /// Not even the node itself fits.
    #[error(
        "{} allows no cache: the node itself keeps {}; raise the limit above that",
        told(limit),
        Bytes(*overhead)
    )]
    NothingLeft {
        /// The limit that binds.
        limit: MemoryLimit,
        /// The node's own memory, in bytes.
        overhead: u64,
    },
    /// So much is in use already that the node itself does not fit.
    #[error(
        "only {} of memory are available now, of which the node itself keeps {}; end what uses the \
         rest, or raise the limit of the cgroup",
        Bytes(*available),
        Bytes(*overhead)
    )]
    NothingAvailable {
        /// Bytes that could be taken now.
        available: u64,
        /// The node's own memory, in bytes.
        overhead: u64,
    },
    /// The percentage asked for is out of range.
    #[error("{percent}% is no share of memory; ask for 1% to 100%")]
    NoShare {
        /// Percent asked for.
        percent: u32,
    },
    /// The budget asked for is zero.
    #[error("a cache of 0 bytes holds nothing; ask for at least one shard's size")]
    Zero,
    /// The budget asked for is more than the memory there is.
    #[error(
        "a cache of {} does not fit: {}, of which the node itself keeps {}; ask for at most \
         {}MiB, or raise the limit",
        Bytes(*requested),
        told(limit),
        Bytes(*overhead),
        most >> 20
    )]
    TooLarge {
        /// Bytes asked for.
        requested: u64,
        /// The most bytes that could be used.
        most: u64,
        /// The limit that binds.
        limit: MemoryLimit,
        /// The node's own memory, in bytes.
        overhead: u64,
    },
}

fn told(limit: &MemoryLimit) -> String {
    format!("{} allows {}", limit.source().display(), Bytes(limit.bytes()))
}

/// Returns the budget that is asked for, checked against the memory that this process may use less
/// `overhead`. A share is one of the memory that is free now, for a node beside the processes that
/// it serves. Without a wish, the budget is a default part of the memory. `root` is `/` outside
/// tests.
pub(super) fn budget(
    asked: Option<MemorySetting>,
    root: &Path,
    overhead: u64,
) -> Result<Budget, BudgetError> {
    let requested = match asked {
        None => None,
        Some(MemorySetting::Bytes(bytes)) => Some(bytes),
        Some(MemorySetting::Share(percent)) => return share(percent, root, overhead),
    };
    let limit = MemoryLimit::read(root)?;
    let Some(most) = limit.bytes().checked_sub(overhead).filter(|&most| most > 0) else {
        return Err(BudgetError::NothingLeft { limit, overhead });
    };
    match requested {
        Some(0) => Err(BudgetError::Zero),
        Some(requested) if requested > most => {
            Err(BudgetError::TooLarge { requested, most, limit, overhead })
        }
        Some(requested) => Ok(Budget::new(requested)),
        None if limit.is_of_machine() => {
            Ok(Budget::new(most.min(limit.bytes() / UNTOLD_SHARE_OF_MACHINE)))
        }
        None => Ok(Budget::new(most)),
    }
}

/// Checks that the largest shard fits the limit on the size of files, which counts for shared
/// memory too.
///
/// # Errors
/// `InvalidArgument` if it does not fit.
pub(super) fn check_file_size(budget_bytes: u64) -> Result<(), Error> {
    let needed = budget_bytes.min(limits::SHARD_BYTES_MAX);
    match getrlimit(Resource::RLIMIT_FSIZE) {
        Ok((limit, _)) if limit < needed => {
            let what = format!(
                "files of this process may have {} (ulimit -f), and a shard in shared memory may \
                 take {}; start the node with ulimit -f unlimited, or LimitFSIZE=infinity in its unit",
                Bytes(limit),
                Bytes(needed)
            );
            Err(Error::new(ErrorKind::InvalidArgument, what))
        }
        _ => Ok(()),
    }
}

/// Returns the most shards that this process may have open and mapped.
pub(super) fn shards_max(root: &Path) -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(files, _)| files);
    let maps = fs::read_to_string(root.join("proc/sys/vm/max_map_count"));
    let maps = maps.ok().and_then(|maps| maps.trim().parse().ok()).unwrap_or(u64::MAX);
    usize::try_from(files.min(maps) / SHARDS_SHARE).unwrap_or(usize::MAX)
}

fn share(percent: u32, root: &Path, overhead: u64) -> Result<Budget, BudgetError> {
    if !(1..=100).contains(&percent) {
        return Err(BudgetError::NoShare { percent });
    }
    let available = available_memory(root)?;
    let share = available.saturating_sub(overhead) / 100 * u64::from(percent);
    if share == 0 {
        return Err(BudgetError::NothingAvailable { available, overhead });
    }
    Ok(Budget::new(share))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n");
    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const V1: (&str, &str) =
        ("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n");

    fn host(files: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        for (path, text) in [MEMINFO].iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn share(percent: u32, files: &[(&str, &str)]) -> Result<u64, BudgetError> {
        let asked = Some(MemorySetting::Share(percent));
        budget(asked, host(files).path(), 64 * MIB).map(|budget| budget.limit_bytes())
    }

    #[test]
    fn takes_half_of_the_maps_if_they_are_fewer_than_the_files() {
        let root = host(&[("proc/sys/vm/max_map_count", "120\n")]);
        assert_eq!(shards_max(root.path()), 60);
        assert!(shards_max(host(&[]).path()) > 60);
    }

    #[test]
    fn takes_a_share_of_available_memory_without_cgroups() {
        assert_eq!(share(50, &[]).unwrap(), (8192 - 64) * MIB / 100 * 50);
    }

    #[test]
    fn takes_a_share_of_free_memory_and_page_cache_of_the_cgroup() {
        let files = [
            V2,
            ("proc/self/cgroup", "0::/job\n"),
            ("sys/fs/cgroup/job/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/job/memory.current", "1610612736\n"),
            (
                "sys/fs/cgroup/job/memory.stat",
                "anon 1\ninactive_file 268435456\nactive_file 268435456\n",
            ),
        ];
        assert_eq!(share(50, &files).unwrap(), (1024 - 64) * MIB / 100 * 50);
        let files = [
            V1,
            ("proc/self/cgroup", "4:memory:/job\n"),
            ("sys/fs/cgroup/job/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/job/memory.usage_in_bytes", "536870912\n"),
        ];
        assert_eq!(share(25, &files).unwrap(), (512 - 64) * MIB / 100 * 25);
    }

    #[test]
    fn full_cgroup_and_invalid_shares_are_refused() {
        let files = [
            V2,
            ("proc/self/cgroup", "0::/job\n"),
            ("sys/fs/cgroup/job/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/job/memory.current", "1073741824\n"),
        ];
        assert!(matches!(share(50, &files), Err(BudgetError::NothingAvailable { .. })));
        assert!(matches!(share(0, &[]), Err(BudgetError::NoShare { percent: 0 })));
        assert!(matches!(share(101, &[]), Err(BudgetError::NoShare { percent: 101 })));
    }

    #[test]
    fn error_for_too_large_a_size_names_limit_file_and_remedy() {
        let root = host(&[
            V2,
            ("proc/self/cgroup", "0::/larder\n"),
            ("sys/fs/cgroup/larder/memory.max", "1073741824\n"),
        ]);
        let detect =
            |asked: Option<u64>| budget(asked.map(MemorySetting::Bytes), root.path(), 64 << 20);
        let most = GIB - (64 << 20);
        assert_eq!(detect(Some(most)).unwrap(), Budget::new(most));
        assert_eq!(detect(None).unwrap(), Budget::new(most));
        let message = detect(Some(most + 1)).unwrap_err().to_string();
        for part in ["960 MiB", "allows 1.0 GiB", "larder/memory.max", "64 MiB", "at most 960MiB"] {
            assert!(message.contains(part), "{part} is not in {message:?}");
        }
        assert!(matches!(detect(Some(0)), Err(BudgetError::Zero)));
        let nothing = budget(None, root.path(), GIB);
        assert!(matches!(nothing, Err(BudgetError::NothingLeft { .. })));
    }

    #[test]
    fn default_budget_is_half_of_a_shared_machine() {
        let root = host(&[]);
        assert_eq!(budget(None, root.path(), 64 << 20).unwrap(), Budget::new(8 * GIB));
        assert_eq!(budget(None, root.path(), 15 * GIB).unwrap(), Budget::new(GIB));
    }
}
