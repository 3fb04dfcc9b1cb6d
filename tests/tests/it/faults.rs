//! An origin with every possible fault: no byte is ever wrong, and each error names the fault.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use larder_client::{Dataset, ErrorKind};
use larder_origin::{Fault, FaultPlan, Options, S3Server};
use larder_tests::node::binary;
use larder_tests::{ClientOptions, NodeOptions, NodeProcess, TrainingProcess, repeats, words};
use tempfile::TempDir;

/// Threads that read at once.
const READERS: usize = 16;
/// How long a stalled answer stalls. The node gives up on an answer after ten seconds. Most end
/// before that with a hang-up.
const STALL: Duration = Duration::from_secs(1);
/// The share of the origin's reads with a fault: few enough that retries are not used up every
/// time.
const FAULT_SHARE: f64 = 0.25;

/// A bucket `data` with the dataset `words`. Each sample is an object and a shard of its own.
struct Origin {
    server: S3Server,
    samples: u64,
    _dir: TempDir,
}

impl Origin {
    fn new(samples: u32, index_args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let server = S3Server::start(dir.path(), &Options::default()).expect("an S3 server");
        words::write(
            &server.create_bucket("data").expect("a bucket").join("words"),
            samples,
            1,
            1024,
        );
        let output = Command::new(binary("larder"))
            .args(["dataset", "index", "s3://data/words", "--shard-bytes", "4096", "-o", "json"])
            .args(index_args)
            .envs(server.env())
            .output()
            .expect("larder starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { server, samples: u64::from(samples), _dir: dir }
    }

    fn node(&self) -> NodeProcess {
        let mut options = NodeOptions::new("a", "s3://data");
        options.env = self.server.env();
        NodeProcess::start(&options)
    }

    /// Opens the dataset through `node`, without mappings, with retries for `patience`.
    fn client(&self, node: &NodeProcess, patience: Duration) -> Dataset {
        let options = Dataset::options().cluster(node.address()).local(false).patience(patience);
        let dataset = options.open("s3://data/words").expect("opens");
        assert_eq!(dataset.samples(), self.samples);
        assert_eq!(u64::from(dataset.manifest().shard_count()), self.samples, "a shard each");
        dataset
    }

    /// Injects faults for the data; the manifest stays free of them.
    fn inject(&self, plan: FaultPlan) {
        self.server.set_faults(plan.keys_containing(".safetensors").stall(STALL));
    }
}

fn fills_started(node: &NodeProcess) -> u64 {
    node.describe().counters.expect("counters").fills_started
}

/// Reads a sample: it is right, or an error names the fault.
fn read(dataset: &Dataset, sample: u64) -> Result<(), ErrorKind> {
    match dataset.read(sample, words::TENSOR) {
        Ok(row) => {
            assert!(words::is_right(sample, &row), "wrong bytes in sample {sample}");
            Ok(())
        }
        Err(error) => {
            let clear = [
                ErrorKind::OriginUnavailable,
                ErrorKind::DataChanged,
                ErrorKind::DataLoss,
                ErrorKind::NotFound,
                ErrorKind::PermissionDenied,
                ErrorKind::ResourceExhausted,
            ];
            assert!(
                clear.contains(&error.kind()),
                "sample {sample}: {:?}: {error:#}",
                error.kind()
            );
            Err(error.kind())
        }
    }
}

/// The results of many reads.
#[derive(Debug, Default)]
struct Tally {
    right: u64,
    errors: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn add(&mut self, outcome: Result<(), ErrorKind>) {
        match outcome {
            Ok(()) => self.right += 1,
            Err(kind) => *self.errors.entry(kind.name()).or_default() += 1,
        }
    }
}

/// Reads every sample once, from many threads.
fn read_all(dataset: &Dataset, tally: &Mutex<Tally>) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                loop {
                    let sample = next.fetch_add(1, Ordering::Relaxed);
                    if sample >= dataset.samples() {
                        return;
                    }
                    let outcome = read(dataset, sample);
                    tally.lock().expect("no reader died").add(outcome);
                }
            });
        }
    });
}

/// Without faults every sample comes, once the node has forgotten the failures of its shards.
fn everything_is_right_in_the_end(origin: &Origin, node: &NodeProcess) {
    let dataset = origin.client(node, Duration::from_secs(5));
    let mut missing: Vec<u64> = (0..origin.samples).collect();
    let mut last = None;
    // A node forgets a failure after five seconds. Some shards fail again before.
    for _ in 0..=20 {
        missing.retain(|sample| read(&dataset, *sample).map_err(|kind| last = Some(kind)).is_err());
        if missing.is_empty() {
            return;
        }
        thread::park_timeout(Duration::from_secs(1));
    }
    panic!("{} samples still don't come, the last with {last:?}: {missing:?}", missing.len());
}

/// Reads the dataset through one new node after another, until there were this many fills under
/// `faults`.
fn fill_under(origin: &Origin, faults: &[Fault], fills: u64) {
    let (mut done, mut seed) = (0, 0);
    let tally = Mutex::new(Tally::default());
    while done < fills {
        seed += 1;
        let node = origin.node();
        let dataset = origin.client(&node, Duration::from_secs(3));
        origin.inject(FaultPlan::seeded(seed).with_any_of(faults, FAULT_SHARE));
        read_all(&dataset, &tally);
        done += fills_started(&node);
        origin.server.clear_faults();
        if seed == 1 || done >= fills {
            everything_is_right_in_the_end(origin, &node);
        }
    }
    let injected = origin.server.counts().faults;
    let tally = tally.into_inner().expect("no reader died");
    println!(
        "{done} fills in {seed} sessions met {} faults of {} kinds: {tally:?}",
        injected.values().sum::<u64>(),
        injected.len()
    );
    assert!(injected.len() >= faults.len().min(40), "only these were met: {injected:?}");
    assert!(tally.right > 2 * tally.errors.values().sum::<u64>(), "{tally:?}");
}

fn goal(quick: usize, full: usize) -> u64 {
    u64::try_from(repeats(quick, full)).expect("few")
}

#[test]
fn pinned_checksum_prevents_wrong_bytes_under_every_fault() {
    let origin = Origin::new(1000, &["--checksum"]);
    fill_under(&origin, Fault::ALL, goal(2_000, 50_000));
}

#[test]
fn visible_faults_cause_no_wrong_byte_without_checksums() {
    let origin = Origin::new(500, &[]);
    let seen: Vec<Fault> =
        Fault::ALL.iter().copied().filter(|fault| !fault.needs_checksum()).collect();
    fill_under(&origin, &seen, goal(500, 5_000));
}

#[test]
fn each_fault_met_once_costs_a_retry_and_no_error() {
    let kinds = u32::try_from(Fault::ALL.len()).expect("few");
    let origin = Origin::new(kinds, &["--checksum"]);
    let node = origin.node();
    let dataset = origin.client(&node, Duration::from_secs(30));
    for (sample, fault) in (0..).zip(Fault::ALL) {
        origin.inject(FaultPlan::once(*fault));
        let outcome = read(&dataset, sample);
        let met = origin.server.counts().faults.get(fault.name()).copied();
        assert_eq!(met, Some(1), "{fault:?} was not met");
        assert_eq!(outcome, Ok(()), "{fault:?} is to be had right by asking again");
    }
    origin.server.clear_faults();
    everything_is_right_in_the_end(&origin, &node);
}

/// Denied, changed or gone may be a mistake of the store; the second such answer is believed.
#[test]
fn final_answer_for_a_shard_is_retried_exactly_once() {
    let finals = [
        (Fault::AccessDenied, ErrorKind::PermissionDenied),
        (Fault::PreconditionFailedOnce, ErrorKind::DataChanged),
        (Fault::EtagChanged, ErrorKind::DataChanged),
        (Fault::NotFoundOnce, ErrorKind::DataChanged),
    ];
    let origin = Origin::new(u32::try_from(finals.len()).expect("few"), &[]);
    let node = origin.node();
    let dataset = origin.client(&node, Duration::from_secs(3));
    for (sample, (fault, kind)) in (0..).zip(finals) {
        origin.inject(FaultPlan::always(fault));
        assert_eq!(read(&dataset, sample), Err(kind), "{fault:?}");
        let met = origin.server.counts().faults.get(fault.name()).copied();
        assert_eq!(met, Some(2), "{fault:?}");
    }
}

/// The client could read the origin itself. It must not do so for a shard that the node found
/// damaged, since no check would cover those rows.
#[test]
fn damage_found_by_a_node_fails_a_client_with_an_origin() {
    let origin = Origin::new(16, &["--checksum"]);
    let node = origin.node();
    for args in [&["--impatient"][..], &["--impatient", "--remote-only"]] {
        origin.inject(FaultPlan::always(Fault::BitFlipped));
        let mut client = TrainingProcess::start(&ClientOptions {
            program: env!("CARGO_BIN_EXE_larder-test-client"),
            uri: "s3://data/words",
            cluster: &node.address(),
            epochs: 1,
            seed: 1,
            batch_size: 4,
            env: origin.server.env(),
            args,
            wrapper: &[],
        });
        let (status, lines) = client.finish();
        assert_eq!(status.code(), Some(1), "{lines:?}");
        assert_eq!(lines, ["error data_loss"]);
        origin.server.clear_faults();
    }
    everything_is_right_in_the_end(&origin, &node);
}
