//! Finds how much memory this process may use: the least of the machine's memory and its cgroups'
//! limits, less the node's own overhead.
//!
//! Both cgroup versions are read, at every level from the process's own group up to the mount,
//! because a limit anywhere above binds as well. All paths start at a root that is handed in.

use super::Budget;
use larder_base::Bytes;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// On a machine without cgroup limits, a node takes one part in this many unless told otherwise, as
/// a tmpfs does. In a cgroup it takes all of the group's memory, which was set aside for it.
const UNTOLD_SHARE_OF_MACHINE: u64 = 2;

/// Why there is no budget.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// The file with the memory limit cannot be read.
    #[error("cannot read the memory limit in {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file with the memory limit has no number.
    #[error("{} holds {text:?}, which is not a number of bytes", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The start of its text.
        text: String,
    },
    /// Not even the node itself fits.
    #[error(
        "{limit} allows no cache: the node itself keeps {}; raise the limit above that",
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
        "a cache of {} does not fit: {limit}, of which the node itself keeps {}; ask for at most \
         {}MiB, or raise the limit",
        Bytes(*requested),
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

/// The least memory limit that binds this process, and the file that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    bytes: u64,
    source: PathBuf,
    of_machine: bool,
}

impl std::fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} allows {}", self.source.display(), Bytes(self.bytes))
    }
}

impl Budget {
    /// Returns the budget: `requested` bytes, checked against the memory that this process may use
    /// less `overhead`. Without a request, it is a default part of that memory. `root` holds `proc`
    /// and `sys`, and is `/` outside tests.
    pub fn detect(requested: Option<u64>, root: &Path, overhead: u64) -> Result<Self, BudgetError> {
        let limit = MemoryLimit::read(root)?;
        let Some(most) = limit.bytes.checked_sub(overhead).filter(|&most| most > 0) else {
            return Err(BudgetError::NothingLeft { limit, overhead });
        };
        match requested {
            Some(0) => Err(BudgetError::Zero),
            Some(requested) if requested > most => {
                Err(BudgetError::TooLarge { requested, most, limit, overhead })
            }
            Some(requested) => Ok(Self::new(requested)),
            None if limit.of_machine => {
                Ok(Self::new(most.min(limit.bytes / UNTOLD_SHARE_OF_MACHINE)))
            }
            None => Ok(Self::new(most)),
        }
    }
}

impl MemoryLimit {
    /// Reads `proc/meminfo` and the cgroups of this process, all below `root`.
    pub fn read(root: &Path) -> Result<Self, BudgetError> {
        let mut least = machine_limit(&root.join("proc/meminfo"))?;
        for group in MemoryCgroup::all(root)? {
            for limit in group.limits()? {
                if limit.bytes < least.bytes {
                    least = limit;
                }
            }
        }
        Ok(least)
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file with the limit.
    pub fn source(&self) -> &Path {
        &self.source
    }
}

/// A memory cgroup that this process lives in, directly or further up.
pub(super) struct MemoryCgroup {
    pub(super) version: Version,
    pub(super) folder: PathBuf,
}

impl MemoryCgroup {
    /// Returns all groups that are visible below `root`.
    pub(super) fn all(root: &Path) -> Result<Vec<Self>, BudgetError> {
        let mounts = read_if_there(&root.join("proc/self/mountinfo"))?.unwrap_or_default();
        let member_of = read_if_there(&root.join("proc/self/cgroup"))?.unwrap_or_default();
        let mut groups = Vec::new();
        for (version, group) in member_of.lines().filter_map(parse_membership) {
            let mounts = mounts.lines().filter_map(Mount::parse);
            for mount in mounts.filter(|mount| mount.version == version) {
                let levels = mount.levels_of(root, group).into_iter();
                groups.extend(levels.map(|folder| Self { version, folder }));
            }
        }
        Ok(groups)
    }

    /// Returns its limits; none if it has no limit.
    pub(super) fn limits(&self) -> Result<Vec<MemoryLimit>, BudgetError> {
        let files = self.version.files().iter();
        let limits = files.map(|file| cgroup_limit(self.folder.join(file)));
        limits.filter_map(Result::transpose).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

impl Version {
    /// Above `memory.high` the kernel does not kill a process but slows it to a crawl. Shared
    /// memory cannot be reclaimed without swap, so this counts as a limit.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["memory.limit_in_bytes"],
            Self::V2 => &["memory.max", "memory.high"],
        }
    }
}

/// A line of `/proc/self/cgroup`: `4:memory:/group` (version 1), `0::/group` (version 2).
fn parse_membership(line: &str) -> Option<(Version, &str)> {
    let (hierarchy, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    if hierarchy == "0" && controllers.is_empty() {
        return Some((Version::V2, group));
    }
    controllers.split(',').any(|name| name == "memory").then_some((Version::V1, group))
}

/// The mount of a hierarchy with memory limits.
struct Mount<'a> {
    version: Version,
    /// The group that is seen at `point`: not `/` in a container without its own namespace.
    group: &'a str,
    point: String,
}

impl<'a> Mount<'a> {
    /// A line of `/proc/self/mountinfo`:
    /// `35 31 0:32 GROUP POINT rw,relatime [optional..] - TYPE SOURCE OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        let version = match filesystem.next()? {
            "cgroup2" => Version::V2,
            "cgroup" if filesystem.nth(1)?.split(',').any(|name| name == "memory") => Version::V1,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        let group = fields.next()?;
        let point = fields.next()?.trim_start_matches('/').replace("\\040", " ");
        Some(Self { version, group, point })
    }

    /// Returns the folders of a group and of its parents, as far as this mount shows them.
    fn levels_of(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let top = root.join(&self.point);
        // A group outside the mount is not visible. The limits at the mount bind it too.
        let below = Path::new(group)
            .strip_prefix(self.group)
            .ok()
            .filter(|below| !below.components().any(|part| part.as_os_str() == ".."))
            .unwrap_or(Path::new(""));
        below.ancestors().map(|level| top.join(level)).collect()
    }
}

/// Returns a cgroup's limit; none if the file is missing (as for a root group) or says `max`.
fn cgroup_limit(source: PathBuf) -> Result<Option<MemoryLimit>, BudgetError> {
    let text = read_if_there(&source)?;
    let Some(text) = text.as_deref().map(str::trim).filter(|&text| text != "max") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(bytes) => Ok(Some(MemoryLimit { bytes, source, of_machine: false })),
        Err(_) => Err(malformed(source, text)),
    }
}

/// The line `MemTotal:  24684096 kB` of `/proc/meminfo`.
fn machine_limit(source: &Path) -> Result<MemoryLimit, BudgetError> {
    let bytes = meminfo(source, "MemTotal:")?;
    Ok(MemoryLimit { bytes, source: source.into(), of_machine: true })
}

/// One line of `/proc/meminfo`, in bytes.
pub(super) fn meminfo(source: &Path, name: &str) -> Result<u64, BudgetError> {
    let text = fs::read_to_string(source)
        .map_err(|error| BudgetError::Unreadable { path: source.into(), source: error })?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let kibibytes = line.trim().strip_suffix("kB").and_then(|count| count.trim().parse().ok());
    kibibytes
        .and_then(|count: u64| count.checked_mul(1024))
        .ok_or_else(|| malformed(source.into(), line))
}

pub(super) fn malformed(path: PathBuf, text: &str) -> BudgetError {
    BudgetError::Malformed { path, text: text.chars().take(40).collect() }
}

pub(super) fn read_if_there(path: &Path) -> Result<Option<String>, BudgetError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BudgetError::Unreadable { path: path.into(), source }),
    }
}

#[cfg(test)]
pub(super) mod tests;
