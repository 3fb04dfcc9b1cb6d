//! Finds the memory that is free now, for a node that shares its cgroup with the processes it
//! serves: the least of the machine's available memory and the cgroups' free memory.
//!
//! Page cache in a cgroup counts as free: the kernel reclaims it before it kills. Shared memory
//! does not, so it is not subtracted here with the page cache.

use std::path::Path;

use super::Budget;
use super::detect::{BudgetError, MemoryCgroup, Version, malformed, meminfo, read_if_there};

impl Budget {
    /// Returns the budget of a node beside the processes it serves: `percent` of the free memory
    /// that remains after `overhead`. `root` holds `proc` and `sys`, and is `/` outside tests.
    ///
    /// # Errors
    /// If `percent` is not 1 to 100, the system does not tell, or nothing is left.
    pub fn detect_share(percent: u32, root: &Path, overhead: u64) -> Result<Self, BudgetError> {
        if !(1..=100).contains(&percent) {
            return Err(BudgetError::NoShare { percent });
        }
        let available = available(root)?;
        let share = available.saturating_sub(overhead) / 100 * u64::from(percent);
        if share == 0 {
            return Err(BudgetError::NothingAvailable { available, overhead });
        }
        Ok(Self::new(share))
    }
}

fn available(root: &Path) -> Result<u64, BudgetError> {
    let mut least = meminfo(&root.join("proc/meminfo"), "MemAvailable:")?;
    for group in MemoryCgroup::all(root)? {
        for limit in group.limits()? {
            least = least.min(limit.bytes().saturating_sub(used(&group)?));
        }
    }
    Ok(least)
}

/// Returns the memory that a group uses and cannot release at once; 0 if the kernel does not tell.
fn used(group: &MemoryCgroup) -> Result<u64, BudgetError> {
    let (current, prefix) = match group.version {
        Version::V2 => ("memory.current", ""),
        Version::V1 => ("memory.usage_in_bytes", "total_"),
    };
    let path = group.folder.join(current);
    let Some(text) = read_if_there(&path)? else { return Ok(0) };
    let current: u64 = text.trim().parse().map_err(|_| malformed(path, text.trim()))?;
    let stat = read_if_there(&group.folder.join("memory.stat"))?.unwrap_or_default();
    let cached: u64 = ["inactive_file", "active_file"]
        .iter()
        .filter_map(|name| statistic(&stat, &format!("{prefix}{name}")))
        .sum();
    Ok(current.saturating_sub(cached))
}

/// Returns one line of `memory.stat`.
fn statistic(text: &str, name: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| line.split_once(' '));
    values.into_iter().find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::detect::tests::host;
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n");
    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const V1: (&str, &str) =
        ("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n");

    fn share(percent: u32, files: &[(&str, &str)]) -> Result<u64, BudgetError> {
        let files: Vec<_> = [MEMINFO].iter().chain(files).copied().collect();
        let root = host(&files);
        Budget::detect_share(percent, root.path(), 64 * MIB).map(|budget| budget.limit_bytes())
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
}
