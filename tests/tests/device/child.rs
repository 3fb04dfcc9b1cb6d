//! A case of the suite as a child process, and its outcome.

use std::{
    fmt,
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use serde_json::Value;
use tempfile::TempDir;

/// Names the case to the child.
pub(crate) const CASE: &str = "LARDER_DEVICE_CASE";
/// Names the driver: `host` or `cuda`.
pub(crate) const DRIVER: &str = "LARDER_DEVICE_DRIVER";
/// Names a mistake that the client must make.
pub(crate) const PLANTED: &str = "LARDER_PLANTED_MISTAKE";

/// Each copy takes this long over the stand-in, so that a missing wait shows.
const DELAY_US: &str = "1000";

/// The driver that a case runs over.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    /// Memory of the process.
    Host,
    /// The stand-in, with these settings.
    StandIn(&'a [(&'a str, &'a str)]),
    /// The driver of this host.
    Gpu,
    /// No driver.
    Nothing,
    /// A file with the driver's name that is no library.
    Rubbish,
}

/// How a case ended.
pub(crate) struct Outcome {
    case: String,
    status: ExitStatus,
    output: String,
    report: Value,
}

/// Runs a case to its end.
pub(crate) fn run(case: &str, over: Over<'_>) -> Outcome {
    let (mut command, folder) = command(case, over);
    let ended = command.output().expect("a child process");
    let output = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    outcome(case, ended.status, output, folder.path())
}

/// The command of a child, and the folder with its driver and its report.
pub(crate) fn command(case: &str, over: Over<'_>) -> (Command, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child", "--nocapture"]).env(CASE, case).env(DRIVER, "cuda");
    match over {
        Over::Gpu => {}
        Over::Host => {
            command.env(DRIVER, "host");
        }
        Over::Nothing => {
            command.env("LD_LIBRARY_PATH", folder.path());
        }
        Over::Rubbish => {
            std::fs::write(folder.path().join("libcuda.so"), "no library").expect("a file");
            command.env("LD_LIBRARY_PATH", folder.path());
        }
        Over::StandIn(settings) => {
            for name in ["libcuda.so", "libcuda.so.1"] {
                symlink(standin(), folder.path().join(name)).expect("a link");
            }
            command
                .env("LD_LIBRARY_PATH", folder.path())
                .env("STANDIN_REPORT", report_of(folder.path()))
                .env("STANDIN_DELAY_US", DELAY_US)
                .envs(settings.iter().copied());
        }
    }
    (command, folder)
}

/// Collects the outcome of a child with this folder.
pub(crate) fn outcome(case: &str, status: ExitStatus, output: String, folder: &Path) -> Outcome {
    let report = std::fs::read(report_of(folder)).unwrap_or_default();
    let report = serde_json::from_slice(&report).unwrap_or(Value::Null);
    Outcome { case: case.to_owned(), status, output, report }
}

fn report_of(folder: &Path) -> PathBuf {
    folder.join("report.json")
}

/// The stand-in, beside this test.
fn standin() -> PathBuf {
    let exe = std::env::current_exe().expect("this program");
    let path = exe.with_file_name("liblarder_cuda_standin.so");
    assert!(path.exists(), "{} is missing", path.display());
    path
}

impl Outcome {
    /// The case was right, and so was each call of the driver.
    pub(crate) fn passes(&self) {
        self.succeeds();
        assert_eq!(self.mistakes(), Vec::<&str>::new(), "{self:?}");
        for (resource, count) in self.report["left"].as_object().into_iter().flatten() {
            assert_eq!(count, 0, "{resource} are left: {self:?}");
        }
        for count in ["pageable_bytes", "context_waits"] {
            assert!(self.report.is_null() || self.count(count) == 0, "{count}: {self:?}");
        }
    }

    /// The child found nothing wrong.
    pub(crate) fn succeeds(&self) {
        assert!(self.status.success(), "{self:?}");
    }

    pub(crate) fn mistakes(&self) -> Vec<&str> {
        let mistakes = self.report["mistakes"].as_array().into_iter().flatten();
        mistakes.filter_map(|mistake| mistake["kind"].as_str()).collect()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report["counts"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn calls(&self, name: &str) -> u64 {
        self.report["calls"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn left(&self, name: &str) -> u64 {
        self.report["left"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// A number that the child printed as `name=number`.
    pub(crate) fn said(&self, name: &str) -> u64 {
        let words = self.output.split_whitespace();
        let mut values =
            words.filter_map(|word| word.split_once('=')).filter(|(key, _)| *key == name);
        let value = values.next_back().and_then(|(_, value)| value.parse().ok());
        value.unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, status, output, report } = self;
        write!(f, "{case}: {status}\n{output}\n{report:#}")
    }
}
