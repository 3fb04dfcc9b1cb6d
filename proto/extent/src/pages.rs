//! Page sizes of memory: the size that a mapping got, advice for a host that gives only small
//! pages, and memory of one process in huge pages. [`limit`] tells how much there is.
//!
//! With 2 MiB pages a fill takes memory three times faster, an attach runs 150 times faster, and
//! reads run up to 1.4 times faster. They come from transparent huge pages for shared memory, which
//! most hosts turn off. 4 KiB pages always work.

pub(crate) mod limit;

use std::fs;
use std::io;
use std::ops::{Deref, DerefMut, Range};

use memmap2::{Advice, MmapMut};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::layout::index;
use crate::memfd::map::{PagePreference, PopulatedMap};
use crate::{ExtentError, memfd, sys};

pub(crate) const HUGE_BYTES: u64 = 2 << 20;

/// The host's setting for huge pages of shared memory.
const SHMEM_ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The same setting for 2 MiB pages alone; `inherit` refers to the one above.
const SHMEM_ENABLED_HUGE: &str =
    "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled";

/// The page size a mapping got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB pages, at least for the greater part.
    Small,
    /// 2 MiB pages for the greater part (the tail of a mapping is always small).
    Huge,
}

impl PageSize {
    /// Returns the bytes of such a page.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Small => 4096,
            Self::Huge => HUGE_BYTES,
        }
    }

    /// Returns the page size of the mapping at `addresses`. An unknown size counts as small.
    pub(crate) fn of(addresses: &Range<usize>) -> Self {
        let huge = sys::huge_bytes(addresses).unwrap_or_else(|_| huge_bytes_by_smaps(addresses));
        if index(huge) * 2 > addresses.len() { Self::Huge } else { Self::Small }
    }
}

/// Counts the bytes at `addresses` that huge pages map, for kernels before 6.7. Slow: the time
/// grows with all mappings of the process.
fn huge_bytes_by_smaps(addresses: &Range<usize>) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let head = format!("{:x}-", addresses.start);
    smaps
        .lines()
        .skip_while(|line| !line.starts_with(&head))
        .find_map(|line| line.strip_prefix("ShmemPmdMapped:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Returns whether the host may give huge pages to a mapping of an extent that asks for them.
pub(crate) fn huge_may_be_given() -> bool {
    let given = |path| fs::read_to_string(path).is_ok_and(|setting| names_a_way(&setting));
    given(SHMEM_ENABLED) || given(SHMEM_ENABLED_HUGE)
}

/// Returns whether the choice marked in a setting (`always [never] ..`) gives huge pages by itself.
fn names_a_way(setting: &str) -> bool {
    let chosen =
        setting.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.is_some_and(|chosen| !matches!(chosen, "never" | "deny" | "inherit"))
}

/// The pages this host gives to extents.
#[derive(Clone, Debug)]
pub struct PageReport {
    /// The page size that a test extent got when it asked for huge pages.
    pub page_size: PageSize,
    /// The host's setting for huge pages of shared memory, in the kernel's words; `None` if the
    /// kernel has no such setting.
    pub shmem_enabled: Option<String>,
    /// Bytes that this process may lock in memory; `None` if there is no limit.
    pub lock_bytes_max: Option<u64>,
    /// Changes the operator could make, in words; empty if there are none.
    pub advice: Vec<String>,
}

/// Measures the pages this host gives to extents. Takes 4 MiB for a moment.
///
/// # Errors
/// If even the test extent could not be made.
pub fn probe() -> Result<PageReport, ExtentError> {
    let file = memfd::create(2 * HUGE_BYTES)?;
    let map = PopulatedMap::new(&file, PagePreference::Auto)
        .map_err(ExtentError::os("mapping 4 MiB of shared memory"))?;
    let page_size = PageSize::of(&map.addresses());
    let shmem_enabled = fs::read_to_string(SHMEM_ENABLED).ok().map(|text| text.trim().to_owned());
    let lock_bytes_max = lock_bytes_max();
    let mut advice = Vec::new();
    if page_size == PageSize::Small {
        advice.push(match &shmem_enabled {
            Some(setting) => format!(
                "memory comes in 4 KiB pages ({SHMEM_ENABLED} is '{setting}'): write 'advise' to \
                 it for 2 MiB pages"
            ),
            None => "memory comes in 4 KiB pages: this kernel has no transparent huge pages".into(),
        });
    }
    if let Some(limit) = lock_bytes_max {
        advice.push(format!(
            "at most {limit} bytes may be locked in memory, so extents may be swapped out: raise \
             the limit (ulimit -l, LimitMEMLOCK=) to the memory budget, or run without swap"
        ));
    }
    Ok(PageReport { page_size, shmem_enabled, lock_bytes_max, advice })
}

/// Returns the bytes this process may lock; `None` without a limit or with the right to ignore it.
fn lock_bytes_max() -> Option<u64> {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    let unlimited = limit == RLIM_INFINITY || capabilities.unwrap_or(0) & CAP_IPC_LOCK != 0;
    (!unlimited).then_some(limit)
}

/// Zeroed memory of this process alone, in huge pages where the host gives them. It begins at a
/// multiple of 2 MiB. The kernel takes a page when it is first written.
#[derive(Debug)]
pub struct AnonymousMap {
    map: MmapMut,
    start: usize,
    bytes: usize,
}

impl AnonymousMap {
    /// Reserves address space for `bytes` bytes.
    ///
    /// # Errors
    /// The kernel's, if it cannot promise that much memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let huge = index(HUGE_BYTES);
        let map = MmapMut::map_anon(bytes.saturating_add(huge))?;
        // A kernel without huge pages refuses this; small pages do then.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(huge);
        Ok(Self { map, start, bytes })
    }
}

impl Deref for AnonymousMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..][..self.bytes]
    }
}

impl DerefMut for AnonymousMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..][..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AnonymousMap, PageSize, huge_bytes_by_smaps, huge_may_be_given, names_a_way, probe,
    };
    use crate::memfd::map::PopulatedMap;
    use crate::{PagePreference, memfd, sys};

    #[test]
    fn fast_and_slow_count_of_huge_pages_agree() {
        let file = memfd::create(8 << 20).unwrap();
        let map = PopulatedMap::new(&file, PagePreference::Auto).unwrap();
        let slow = huge_bytes_by_smaps(&map.addresses());
        if let Ok(fast) = sys::huge_bytes(&map.addresses()) {
            assert_eq!(fast, slow);
        }
    }

    #[test]
    fn small_pages_are_used_when_preferred() {
        let file = memfd::create(8 << 20).unwrap();
        let map = PopulatedMap::new(&file, PagePreference::Small).unwrap();
        assert_eq!(PageSize::of(&map.addresses()), PageSize::Small);
    }

    #[test]
    fn the_probe_advises_exactly_when_something_is_missing() {
        let report = probe().unwrap();
        let wanting = report.page_size == PageSize::Small || report.lock_bytes_max.is_some();
        assert_eq!(report.advice.is_empty(), !wanting);
    }

    #[test]
    fn marked_choice_of_a_kernel_setting_is_read() {
        assert!(names_a_way("always within_size [advise] never deny force\n"));
        assert!(names_a_way("[always] inherit within_size advise never"));
        assert!(!names_a_way("always within_size advise [never] deny force\n"));
        assert!(!names_a_way("always [inherit] within_size advise never"));
        assert!(!names_a_way(""));
    }

    #[test]
    fn huge_pages_appear_only_if_the_settings_allow_them() {
        assert!(probe().unwrap().page_size == PageSize::Small || huge_may_be_given());
    }

    #[test]
    fn memory_is_zeroed_aligned_and_of_the_requested_length() {
        for bytes in [0, 1, 4096, 5 << 20] {
            let mut memory = AnonymousMap::new(bytes).unwrap();
            assert_eq!(memory.len(), bytes);
            assert_eq!(memory.as_ptr().align_offset(2 << 20), 0);
            assert!(memory.iter().all(|&byte| byte == 0));
            memory.fill(7);
        }
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        for bytes in [usize::MAX, isize::MAX.unsigned_abs()] {
            AnonymousMap::new(bytes).unwrap_err();
        }
    }
}
