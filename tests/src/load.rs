//! Training processes that read and verify for as long as a test needs them.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use crate::{ClientOptions, TrainingProcess};

/// Readers that run until they are told to end.
pub struct Load {
    readers: Vec<JoinHandle<Read>>,
    end: PathBuf,
    _dir: TempDir,
}

/// The results of the readers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Epochs that were complete and right, over all readers.
    pub epochs: u64,
    /// Rows by where they came from: memory of this host, another node, the origin past all nodes.
    pub rows: [u64; 3],
    /// The longest wait of any reader for a batch.
    pub longest_wait: Duration,
}

impl Load {
    /// Starts `readers` of them, each with a seed of its own; every other one maps nothing. All
    /// have read a batch when this returns. `program` is `env!("CARGO_BIN_EXE_larder-test-client")`
    /// in a test of this crate; `env` has the S3 settings.
    #[must_use]
    pub fn start(
        readers: u64,
        program: &str,
        uri: &str,
        cluster: &str,
        env: &[(String, String)],
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let end = dir.path().join("end");
        let word = end.display().to_string();
        let reader = |seed: u64| {
            let ways: &[&str] = if seed.is_multiple_of(2) { &[] } else { &["--remote-only"] };
            let args = [ways, &["--until", &word]].concat();
            let mut reader = TrainingProcess::start(&ClientOptions {
                program,
                uri,
                cluster,
                epochs: 0,
                seed,
                batch_size: 32,
                env: env.to_vec(),
                args: &args,
                wrapper: &[],
            });
            reader.wait_for("batch");
            thread::spawn(move || follow(reader, seed))
        };
        let readers = (0..readers).map(reader).collect();
        Self { readers, end, _dir: dir }
    }

    /// Tells all readers to end after their epoch, and sums up their results.
    ///
    /// # Panics
    /// When one of them failed, found a wrong byte or an incomplete epoch.
    #[must_use]
    pub fn end(mut self) -> Read {
        let mut sum = Read::default();
        for reader in self.tell() {
            let read = reader.join().expect("the reader comes through");
            sum.epochs += read.epochs;
            sum.rows = std::array::from_fn(|at| sum.rows[at] + read.rows[at]);
            sum.longest_wait = sum.longest_wait.max(read.longest_wait);
        }
        sum
    }
}

impl Load {
    /// Tells the readers to end; returns those that were not told before.
    fn tell(&mut self) -> Vec<JoinHandle<Read>> {
        std::fs::write(&self.end, "").expect("a file in a folder of ours");
        std::mem::take(&mut self.readers)
    }
}

impl Drop for Load {
    /// Leaves no reader behind when a test fails.
    fn drop(&mut self) {
        for reader in self.tell() {
            // The reader's result is not the reason for the failure.
            let _ = reader.join();
        }
    }
}

/// Follows a reader's output to its end.
fn follow(mut reader: TrainingProcess, seed: u64) -> Read {
    let (mut read, mut last) = (Read::default(), String::new());
    while let Some(line) = reader.line() {
        if let Some(rows) = line.strip_prefix("batch ") {
            let rows = rows.split(' ').map(|rows| rows.parse::<u64>().expect("a count"));
            read.rows.iter_mut().zip(rows).for_each(|(sum, rows)| *sum += rows);
        }
        read.epochs += u64::from(line.ends_with(" complete"));
        last = line;
    }
    let (status, _) = reader.finish();
    assert!(status.success(), "reader {seed}: {status}, {last:?}");
    read.longest_wait = reader.longest_wait();
    read
}
