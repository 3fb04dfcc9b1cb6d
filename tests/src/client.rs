//! `larder-test-client` as a child process: a training loop that can be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How a training process is started.
#[derive(Clone, Debug)]
pub struct ClientOptions<'a> {
    /// The program: `env!("CARGO_BIN_EXE_larder-test-client")` in a test of this crate.
    pub program: &'a str,
    /// The dataset.
    pub uri: &'a str,
    /// `--cluster`.
    pub cluster: &'a str,
    /// Epochs to read.
    pub epochs: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Samples in a batch.
    pub batch_size: u32,
    /// S3 settings, for the fallback.
    pub env: Vec<(String, String)>,
    /// Further words: `--child`, `--remote-only`, `--over-network NODE`, `--impatient`, `--until
    /// FILE`.
    pub args: &'a [&'a str],
    /// A program and its arguments to run it under, such as `unshare ...`.
    pub wrapper: &'a [&'a str],
}

/// A running training process. Killed on drop.
pub struct TrainingProcess {
    child: Child,
    stdout: BufReader<ChildStdout>,
    longest_wait: Duration,
}

impl TrainingProcess {
    /// Starts it; standard error is the test's.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start(options: &ClientOptions<'_>) -> Self {
        let words = options.wrapper.iter().copied().chain([options.program]);
        let words: Vec<&str> = words.collect();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args([options.uri, options.cluster])
            .args([
                options.epochs.to_string(),
                options.seed.to_string(),
                options.batch_size.to_string(),
            ])
            .args(options.args)
            .envs(options.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", Path::new(words[0]).display()));
        let stdout = BufReader::new(child.stdout.take().expect("stdout was piped"));
        Self { child, stdout, longest_wait: Duration::ZERO }
    }

    /// Returns the next line of its output, without wait lines; `None` at the end.
    ///
    /// # Panics
    /// When its output can't be read.
    pub fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("its standard output");
            let line = line.trim_end();
            let waited = line.strip_prefix("waited ").and_then(|rest| rest.strip_suffix(" ms"));
            let Some(milliseconds) = waited else {
                return (read > 0).then(|| line.to_owned());
            };
            let waited = Duration::from_millis(milliseconds.parse().expect("milliseconds"));
            self.longest_wait = self.longest_wait.max(waited);
        }
    }

    /// The longest wait for a batch that it has printed so far.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// Reads until a line begins with `start`.
    ///
    /// # Panics
    /// When it ends without.
    pub fn wait_for(&mut self, start: &str) -> String {
        let mut last = String::new();
        while let Some(line) = self.line() {
            if line.starts_with(start) {
                return line;
            }
            last = line;
        }
        panic!("the client ended without saying {start:?}; its last line was {last:?}")
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill_now(&mut self) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits in an i32");
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        self.child.wait().expect("our own child can be waited for");
    }

    /// Reads the rest of its output and waits for its end.
    ///
    /// # Panics
    /// When it can't be waited for.
    pub fn finish(&mut self) -> (ExitStatus, Vec<String>) {
        let mut lines = Vec::new();
        while let Some(line) = self.line() {
            lines.push(line);
        }
        (self.child.wait().expect("our own child can be waited for"), lines)
    }
}

impl Drop for TrainingProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill_now();
        }
    }
}
