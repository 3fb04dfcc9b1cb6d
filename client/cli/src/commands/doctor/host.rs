//! The kernel, its limits, and the GPUs.

use std::fs;

use larder_client::{Device, DeviceFacts, Error};
use nix::sys::{
    resource::{Resource, getrlimit},
    utsname::uname,
};

use super::Check;
use crate::output::units;

/// Kernel features by version, the newest first, each with its use.
const FEATURES: [((u32, u32), &str); 3] = [
    ((6, 5), "SO_PEERPIDFD: a client in a container of its own is noticed when it dies"),
    ((6, 3), "MFD_NOEXEC_SEAL: what is in shared memory can never be executed"),
    ((5, 14), "MADV_POPULATE: memory is faulted in at once, a shard attaches without stalls"),
];
/// The oldest supported kernel.
const KERNEL_MIN: (u32, u32) = (5, 14);

/// Descriptors for a large node: one for each resident shard and each connection.
const FILES_WANTED: u64 = 65_536;
const FILES_MIN: u64 = 1024;
/// Maps for 4 TiB in shards of 64 MiB: the usual limit.
const MAPS_WANTED: u64 = 65_530;

pub(super) fn checks() -> Vec<Check> {
    vec![kernel(), files(), maps(), congestion()]
}

fn kernel() -> Check {
    const NAME: &str = "kernel";
    const WHY: &str = "shards are sealed memfds, and clients are watched through pidfds";
    const REMEDY: &str = "run on Linux 5.14 or newer";
    let release = uname().map(|name| name.release().to_string_lossy().into_owned());
    let release = release.unwrap_or_else(|_| "unknown".to_owned());
    let Some(version) = parse_version(&release) else {
        return Check::warn(NAME, release, WHY, REMEDY);
    };
    if version < KERNEL_MIN {
        return Check::fail(NAME, format!("{release} is too old"), WHY, REMEDY);
    }
    let missing: Vec<_> = FEATURES.iter().filter(|(since, _)| version < *since).collect();
    match missing.first() {
        None => Check::ok(NAME, format!("{release} has all that is used"), WHY),
        Some(((major, minor), _)) => {
            let lacks: Vec<_> = missing.iter().map(|(_, what)| *what).collect();
            let found = format!("{release} lacks {}", lacks.join("; "));
            Check::warn(NAME, found, WHY, format!("Linux {major}.{minor} or newer has it"))
        }
    }
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn files() -> Check {
    const NAME: &str = "open files";
    const WHY: &str = "a node keeps one file open for each resident shard and each connection";
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    let found = format!("up to {} (hard limit {})", units::count(soft), units::count(hard));
    let hint = "raise it: LimitNOFILE=1048576 in the systemd unit, or ulimit -n 1048576";
    match soft {
        FILES_WANTED.. => Check::ok(NAME, found, WHY),
        FILES_MIN.. => Check::warn(NAME, found, WHY, hint),
        _ => Check::fail(NAME, found, WHY, hint),
    }
}

fn maps() -> Check {
    const NAME: &str = "memory maps";
    const WHY: &str = "each shard that a process holds is a map of its own";
    let Some(maps) = number("/proc/sys/vm/max_map_count") else {
        return Check::ok(NAME, "vm.max_map_count can't be read", WHY);
    };
    let reach = units::bytes(maps.saturating_mul(64 << 20));
    let found = format!("up to {}: {reach} in shards of 64 MiB", units::count(maps));
    if maps >= MAPS_WANTED {
        return Check::ok(NAME, found, WHY);
    }
    Check::warn(NAME, found, WHY, "sysctl -w vm.max_map_count=262144")
}

fn congestion() -> Check {
    const NAME: &str = "congestion";
    const WHY: &str = "bbr paces what it sends and halves what a fast local network could carry; a node \
                       asks for cubic or reno on its own connections where that is allowed";
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let current = read("tcp_congestion_control").join("");
    let allowed = read("tcp_allowed_congestion_control");
    let found = format!("{current} (allowed: {})", allowed.join(", "));
    if current != "bbr" {
        return Check::ok(NAME, found, WHY);
    }
    match ["cubic", "reno"].iter().find(|name| allowed.iter().any(|one| one == *name)) {
        Some(instead) => Check::ok(NAME, format!("{found}: nodes take {instead}"), WHY),
        None => Check::warn(
            NAME,
            found,
            WHY,
            "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic bbr'",
        ),
    }
}

/// A file with one number in it.
pub(super) fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

const GPU: &str = "GPU";
const GPU_WHY: &str = "batches can come in the memory of a GPU: loader(device=\"cuda\")";

pub(super) fn gpu_checks() -> Vec<Check> {
    match Device::list() {
        Ok(devices) if devices.is_empty() => {
            vec![Check::ok(GPU, "none, or no driver (libcuda.so)", GPU_WHY)]
        }
        Ok(devices) => devices.iter().map(device).collect(),
        Err(error) => vec![Check::warn(GPU, reason(&error), GPU_WHY, hint(&error))],
    }
}

fn device(device: &DeviceFacts) -> Check {
    let DeviceFacts { ordinal, name, memory_bytes, driver, .. } = device;
    let bytes = units::bytes(*memory_bytes);
    let found = format!("cuda:{ordinal} is {name}, {bytes}, driver for CUDA {driver}");
    let opened = Device::cuda(*ordinal);
    match opened.and_then(|device| device.try_registering()) {
        Ok(()) => Check::ok(GPU, format!("{found}; registers pages of the cache"), GPU_WHY),
        Err(error) => Check::warn(
            GPU,
            format!("{found}; {}", reason(&error)),
            "a GPU that registers pages of the cache copies from them: no copy on the host",
            "nothing is to be done: batches are copied through page-locked memory",
        ),
    }
}

fn reason(error: &Error) -> String {
    error.to_string()
}

fn hint(error: &Error) -> &str {
    error.advice_text().unwrap_or("look at nvidia-smi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_of_all_vendors_are_parsed() {
        for (release, version) in [
            ("6.18.44-fc-v595", (6, 18)),
            ("5.15.0-1051-aws", (5, 15)),
            ("6.1", (6, 1)),
            ("4.18.0-553.el8.x86_64", (4, 18)),
        ] {
            assert_eq!(parse_version(release), Some(version));
        }
        assert_eq!(parse_version("unknown"), None);
    }

    #[test]
    fn features_are_listed_newest_first() {
        assert!(FEATURES.is_sorted_by(|a, b| a.0 > b.0));
        assert!(FEATURES.iter().all(|(since, _)| *since >= KERNEL_MIN));
    }
}
