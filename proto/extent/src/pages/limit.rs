//! The memory that this process may use: the least of the machine's memory and its cgroups' limits.
//!
//! Both cgroup versions are read, at every level from the process's own group up to the mount,
//! because a limit anywhere above binds as well. All paths start at a root that is handed in: it
//! holds `proc` and `sys`, and is `/` outside tests.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Why the limit is unknown.
#[derive(Debug, thiserror::Error)]
pub enum MemoryLimitError {
    /// The file with the limit cannot be read.
    #[error("cannot read the memory limit in {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file with the limit has no number.
    #[error("{} holds {text:?}, which is not a number of bytes", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The start of its text.
        text: String,
    },
}

/// The least memory limit that binds this process, and the file that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    bytes: u64,
    source: PathBuf,
    of_machine: bool,
}

impl MemoryLimit {
    /// Reads `proc/meminfo` and the cgroups of this process, all below `root`.
    ///
    /// # Errors
    /// A file can't be read, or has no number.
    pub fn read(root: &Path) -> Result<Self, MemoryLimitError> {
        let (bytes, source) = (memory_figure(root, "MemTotal")?, root.join("proc/meminfo"));
        let mut least = Self { bytes, source, of_machine: true };
        for group in Cgroup::all(root)? {
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

    /// Returns whether all memory of the machine is the limit, so no cgroup has one.
    pub fn is_of_machine(&self) -> bool {
        self.of_machine
    }
}

/// Returns the memory that is free now: the least of the machine's available memory and the
/// cgroups' free memory.
///
/// Page cache in a cgroup counts as free: the kernel reclaims it before it kills. Shared memory
/// does not, so it is not subtracted here with the page cache.
///
/// # Errors
/// A file can't be read, or has no number.
pub fn available_memory(root: &Path) -> Result<u64, MemoryLimitError> {
    let mut least = memory_figure(root, "MemAvailable")?;
    for group in Cgroup::all(root)? {
        for limit in group.limits()? {
            least = least.min(limit.bytes().saturating_sub(group.used()?));
        }
    }
    Ok(least)
}

/// Returns a figure of `proc/meminfo`, such as `SwapTotal`, in bytes.
///
/// # Errors
/// The file can't be read, or has no such number.
pub fn memory_figure(root: &Path, name: &str) -> Result<u64, MemoryLimitError> {
    let source = root.join("proc/meminfo");
    let text = fs::read_to_string(&source)
        .map_err(|error| MemoryLimitError::Unreadable { path: source.clone(), source: error })?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let line = line.unwrap_or_default();
    let kibibytes = line.trim().strip_suffix("kB").and_then(|count| count.trim().parse().ok());
    kibibytes.and_then(|count: u64| count.checked_mul(1024)).ok_or_else(|| malformed(source, line))
}

/// A memory cgroup that this process lives in, directly or further up.
struct Cgroup {
    version: Version,
    folder: PathBuf,
}

impl Cgroup {
    /// Returns all groups that are visible below `root`.
    fn all(root: &Path) -> Result<Vec<Self>, MemoryLimitError> {
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
    fn limits(&self) -> Result<Vec<MemoryLimit>, MemoryLimitError> {
        let files = self.version.files().iter();
        let limits = files.map(|file| cgroup_limit(self.folder.join(file)));
        limits.filter_map(Result::transpose).collect()
    }

    /// Returns the memory that it uses and cannot release at once; 0 if the kernel does not tell.
    fn used(&self) -> Result<u64, MemoryLimitError> {
        let (current, prefix) = match self.version {
            Version::V2 => ("memory.current", ""),
            Version::V1 => ("memory.usage_in_bytes", "total_"),
        };
        let path = self.folder.join(current);
        let Some(text) = read_if_there(&path)? else { return Ok(0) };
        let current: u64 = text.trim().parse().map_err(|_| malformed(path, text.trim()))?;
        let stat = read_if_there(&self.folder.join("memory.stat"))?.unwrap_or_default();
        let cached: u64 = ["inactive_file", "active_file"]
            .iter()
            .filter_map(|name| statistic(&stat, &format!("{prefix}{name}")))
            .sum();
        Ok(current.saturating_sub(cached))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
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
fn cgroup_limit(source: PathBuf) -> Result<Option<MemoryLimit>, MemoryLimitError> {
    let text = read_if_there(&source)?;
    let Some(text) = text.as_deref().map(str::trim).filter(|&text| text != "max") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(bytes) => Ok(Some(MemoryLimit { bytes, source, of_machine: false })),
        Err(_) => Err(malformed(source, text)),
    }
}

fn malformed(path: PathBuf, text: &str) -> MemoryLimitError {
    MemoryLimitError::Malformed { path, text: text.chars().take(40).collect() }
}

fn read_if_there(path: &Path) -> Result<Option<String>, MemoryLimitError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(MemoryLimitError::Unreadable { path: path.into(), source }),
    }
}

/// Returns one line of `memory.stat`.
fn statistic(text: &str, name: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| line.split_once(' '));
    values.into_iter().find(|(key, _)| *key == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests;
