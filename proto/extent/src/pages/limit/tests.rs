//! Memory limits as machines and containers show them, in a folder that stands for `/`.

use super::*;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;
const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:        1 kB\n";
const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
                  35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

fn host(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (path, text) in [("proc/meminfo", MEMINFO)].iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn limit(files: &[(&str, &str)]) -> (u64, String) {
    let root = host(files);
    let limit = MemoryLimit::read(root.path()).unwrap();
    let source = limit.source().strip_prefix(root.path()).unwrap();
    (limit.bytes(), source.display().to_string())
}

#[test]
fn without_cgroups_the_machine_is_the_limit() {
    assert_eq!(limit(&[]), (16 * GIB, "proc/meminfo".into()));
}

#[test]
fn smallest_limit_among_the_parents_applies() {
    let files = [
        ("proc/self/mountinfo", V2),
        ("proc/self/cgroup", "0::/kubepods/pod7/larder\n"),
        ("sys/fs/cgroup/kubepods/memory.max", "12884901888\n"),
        ("sys/fs/cgroup/kubepods/pod7/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/kubepods/pod7/memory.high", "max\n"),
        ("sys/fs/cgroup/kubepods/pod7/larder/memory.max", "8589934592\n"),
    ];
    assert_eq!(limit(&files), (4 * GIB, "sys/fs/cgroup/kubepods/pod7/memory.max".into()));
}

#[test]
fn huge_number_means_unlimited_in_cgroup_v1() {
    let mut files = vec![
        ("proc/self/mountinfo", V1),
        ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/jobs/one\n1:cpu:/\n0::/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    assert_eq!(limit(&files), (16 * GIB, "proc/meminfo".into()));
    files.push(("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1073741824\n"));
    assert_eq!(limit(&files), (GIB, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes".into()));
}

#[test]
fn finds_the_limit_when_the_mount_is_the_own_cgroup() {
    let mountinfo = V1.replace("0:32 / ", "0:32 /docker/abc ");
    let found = (2 * GIB, "sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned());
    for group in ["4:memory:/docker/abc", "4:cpu,memory:/docker/abc", "4:memory:/docker/abcd"] {
        let files = [
            ("proc/self/mountinfo", mountinfo.as_str()),
            ("proc/self/cgroup", group),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"),
        ];
        assert_eq!(limit(&files), found, "{group}");
    }
}

#[test]
fn limit_of_the_mount_applies_outside_of_the_namespace() {
    let files = [
        ("proc/self/mountinfo", V2),
        ("proc/self/cgroup", "0::/../../elsewhere\n"),
        ("sys/fs/cgroup/memory.max", "1073741824"),
    ];
    assert_eq!(limit(&files), (GIB, "sys/fs/cgroup/memory.max".into()));
}

#[test]
fn malformed_limit_file_is_an_error_that_names_it() {
    for text in ["", "lots", "-1", "99999999999999999999"] {
        let root = host(&[
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", text),
        ]);
        let message = MemoryLimit::read(root.path()).unwrap_err().to_string();
        assert!(message.contains("sys/fs/cgroup/memory.max"), "{message}");
    }
    let root = host(&[("proc/meminfo", "MemTotal: 18446744073709551615 kB\n")]);
    assert!(matches!(MemoryLimit::read(root.path()), Err(MemoryLimitError::Malformed { .. })));
}

#[test]
fn limit_of_the_test_machine_can_be_read() {
    let limit = MemoryLimit::read(Path::new("/")).unwrap();
    assert!(limit.bytes() > 0);
}
