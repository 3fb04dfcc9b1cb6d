//! Memory cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A memory cgroup of this test, version 1 or 2, removed on drop.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    version: u8,
}

impl MemoryGroup {
    /// `None` where none can be made (not root, or no delegation).
    #[must_use]
    pub fn new(limit_bytes: u64) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("larder-test-{}-{count}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, version, limit) = if v1.is_dir() {
            (v1, 1, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), 2, "memory.max")
        };
        let path = root.join(name);
        fs::create_dir(&path).ok()?;
        let group = Self { path, version };
        fs::write(group.path.join(limit), limit_bytes.to_string()).ok()?;
        Some(group)
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// When that is not allowed.
    pub fn add(&self, pid: nix::unistd::Pid) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).expect("a process can be moved");
    }

    /// How many of its processes the kernel killed for memory.
    ///
    /// # Panics
    /// When the kernel does not tell.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let (file, key) = if self.version == 1 {
            ("memory.oom_control", "oom_kill ")
        } else {
            ("memory.events", "oom_kill ")
        };
        let text = fs::read_to_string(self.path.join(file)).expect("the group's events");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a count of kills");
        line.trim().parse().expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}
