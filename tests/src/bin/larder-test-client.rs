//! A training process for tests, made to be killed. It reads a `words` dataset epoch after epoch,
//! and checks every byte and the digest of each epoch. After each batch it prints the sources of
//! the rows and the wait. `host` as the cluster is the node of this host.
//!
//! Exit code: 0 on success, 3 for a wrong byte or an incomplete epoch, 1 for an error. The last
//! line is the error's kind.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use larder_client::{Dataset, Error, HostOptions};
use larder_extent::testing::fork_idle_child;
use larder_tests::words;

/// A forked child ends by itself after this, in case the test that started it dies.
const CHILD_SECONDS: u32 = 60;

/// For reads that are expected to fail: longer than a node remembers a shard's failure.
const PATIENCE_SHORT: Duration = Duration::from_secs(6);

struct Arguments {
    uri: String,
    cluster: String,
    epochs: u64,
    seed: u64,
    batch_size: u32,
    /// Fork a child that holds our sockets and maps, does nothing and outlives us.
    child: bool,
    /// Map the memory of nodes on this host.
    local: bool,
    /// But for these, which count as elsewhere.
    over_network: Vec<String>,
    /// Give up on a read soon.
    impatient: bool,
    /// Go on, however many epochs, until there is such a file.
    until: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        let mut next = || words.next();
        let mut parsed = Self {
            uri: next()?,
            cluster: next()?,
            epochs: next()?.parse().ok()?,
            seed: next()?.parse().ok()?,
            batch_size: next()?.parse().ok()?,
            child: false,
            local: true,
            over_network: Vec::new(),
            impatient: false,
            until: None,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--child" => parsed.child = true,
                "--remote-only" => parsed.local = false,
                "--over-network" => parsed.over_network.push(words.next()?),
                "--impatient" => parsed.impatient = true,
                "--until" => parsed.until = Some(words.next()?.into()),
                _ => return None,
            }
        }
        Some(parsed)
    }

    /// Whether the reader stops after this many epochs.
    fn is_over(&self, epochs: u64) -> bool {
        self.until.as_ref().map_or(epochs == self.epochs, |file| file.exists())
    }
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse() else {
        eprintln!(
            "usage: larder-test-client URI CLUSTER EPOCHS SEED BATCH_SIZE [--child] [--remote-only] [--over-network NODE] [--impatient] [--until FILE]"
        );
        return ExitCode::FAILURE;
    };
    match train(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("{error:?}");
            say(&format!("error {}", error.kind()));
            ExitCode::FAILURE
        }
    }
}

/// For a batch that took longer than this, the log says where the time went.
const SLOW: Duration = Duration::from_secs(1);

/// Returns whether every byte was right and every epoch complete.
fn train(arguments: &Arguments) -> Result<bool, Error> {
    let options = Dataset::options().local(arguments.local).over_network(&arguments.over_network);
    let options = match arguments.cluster.as_str() {
        "host" => options.host_node(HostOptions::default()),
        addresses => options.cluster(addresses),
    };
    let options = if arguments.impatient { options.patience(PATIENCE_SHORT) } else { options };
    let dataset = options.open(&arguments.uri)?;
    if let Some(node) = dataset.cluster().and_then(|cluster| cluster.host()) {
        let how = if node.claim_announcement() { "started" } else { "found" };
        say(&format!("node {} {how}", node.pid()));
    }
    let mut loader =
        dataset.loader().batch_size(arguments.batch_size).seed(arguments.seed).build()?;
    let mut forked = false;
    for epoch in 0.. {
        if arguments.is_over(epoch) {
            break;
        }
        let mut batches = loader.epoch(epoch)?;
        loop {
            let start = now();
            let Some(batch) = batches.next() else { break };
            let waited = start.elapsed();
            say(&format!("waited {} ms", waited.as_millis()));
            let batch = batch?;
            if waited >= SLOW {
                eprintln!("waited {waited:?}: {:?}", batch.sources());
            }
            let tensor = batch.tensor(words::TENSOR);
            for (index, sample) in batch.samples().iter().enumerate() {
                if !words::is_right(*sample, tensor.row(index)) {
                    println!("wrong bytes in sample {sample} of epoch {epoch}");
                    return Ok(false);
                }
            }
            let sources = batch.sources();
            let (local, remote, origin) =
                (sources.rows_local, sources.rows_remote, sources.rows_origin);
            say(&format!("batch {local} {remote} {origin}"));
            if arguments.child && !std::mem::replace(&mut forked, true) {
                say(&format!("child {}", fork_idle_child(CHILD_SECONDS).expect("a process")));
            }
        }
        drop(batches);
        if loader.digest() != loader.expected_digest() {
            println!("epoch {epoch} is incomplete");
            return Ok(false);
        }
        say(&format!("epoch {epoch} complete"));
    }
    Ok(true)
}

#[expect(clippy::disallowed_methods, reason = "waits are told in real time")]
fn now() -> Instant {
    Instant::now()
}

/// A reader that went away must not stop the training.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
