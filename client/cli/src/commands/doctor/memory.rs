//! Memory: its size, its pages, and whether it can be locked.

use std::path::Path;

use larder_client::admin::{
    MemoryLimit, PageReport, PageSize, available_memory, memory_figure, probe_pages,
};
use nix::sys::statvfs::statvfs;

use super::Check;
use crate::output::units;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    match probe_pages() {
        Ok(report) => checks.extend([pages(&report), locked(&report)]),
        Err(error) => checks.push(Check::fail(
            "pages",
            error.to_string(),
            "shards are kept in memory that is made like this",
            "allow memfd_create, mmap and fcntl seals (see the seccomp profile of the container)",
        )),
    }
    checks.extend([budget(), shm()]);
    checks
}

fn pages(report: &PageReport) -> Check {
    const NAME: &str = "pages";
    const WHY: &str = "in 2 MiB pages a fill takes memory 3 times faster, an attach 150 times, and reads \
                       run up to 1.4 times faster";
    let setting = report.shmem_enabled.as_deref().and_then(chosen).unwrap_or("absent");
    if report.page_size == PageSize::Huge {
        return Check::ok(NAME, format!("2 MiB (shmem_enabled is '{setting}')"), WHY);
    }
    Check::warn(
        NAME,
        format!("4 KiB (shmem_enabled is '{setting}')"),
        WHY,
        "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled, and make that \
         last in your boot configuration",
    )
}

/// The chosen word of `always [advise] never`.
fn chosen(setting: &str) -> Option<&str> {
    let (_, rest) = setting.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

fn locked(report: &PageReport) -> Check {
    const NAME: &str = "locked memory";
    const WHY: &str =
        "memory that is not locked may be swapped out, and a swapped shard is slower than S3";
    let Some(limit) = report.lock_bytes_max else {
        return Check::ok(NAME, "no limit", WHY);
    };
    let swap = memory_figure(Path::new("/"), "SwapTotal").unwrap_or(0);
    let found = format!("at most {}, {} of swap", units::bytes(limit), units::bytes(swap));
    if swap == 0 {
        return Check::ok(NAME, found, WHY);
    }
    let hint = "LimitMEMLOCK=infinity in the systemd unit, ulimit -l unlimited, or swapoff -a";
    Check::warn(NAME, found, WHY, hint)
}

fn budget() -> Check {
    const NAME: &str = "memory";
    const WHY: &str = "a node's --memory, and what clients map of it, is charged to its memory cgroup: \
                       beyond the limit the kernel kills it";
    let root = Path::new("/");
    let available = available_memory(root).unwrap_or(0);
    let total = memory_figure(root, "MemTotal").unwrap_or(0);
    let host = format!("{} available of {}", units::bytes(available), units::bytes(total));
    match MemoryLimit::read(root) {
        Ok(limit) if limit.is_of_machine() => {
            Check::ok(NAME, format!("{host}, no cgroup limit"), WHY)
        }
        Ok(limit) => {
            Check::ok(NAME, format!("{host}, cgroup limit {}", units::bytes(limit.bytes())), WHY)
        }
        Err(why) => Check::warn(
            NAME,
            format!("{host}, {why}"),
            WHY,
            "a node can't start without its limit: let this process read /proc and /sys/fs/cgroup",
        ),
    }
}

fn shm() -> Check {
    const NAME: &str = "/dev/shm";
    const WHY: &str =
        "shards are memfds, which no mount limits; workers of PyTorch do use /dev/shm";
    let size = statvfs("/dev/shm").ok().map(|fs| fs.blocks() * fs.fragment_size());
    let found = match size {
        Some(bytes) => format!("{}, not used by Larder", units::bytes(bytes)),
        None => "absent, not used by Larder".to_owned(),
    };
    Check::ok(NAME, found, WHY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_setting_is_read_from_the_brackets() {
        assert_eq!(chosen("always within_size advise [never] deny force"), Some("never"));
        assert_eq!(chosen("nonsense"), None);
    }
}
