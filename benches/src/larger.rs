//! Epochs of data larger than memory: nodes and jobs against an S3 server that counts requests and
//! bytes. `make bench-larger`.
//!
//! Jobs run in this process, at a pace. What counts is what they cause at the origin in epochs 2 to
//! 5, beside the bound for any cache. Counts do not depend on the machine.
//!
//! Non-goals: rates of a warm node (see the other parts).

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use larder_client::Dataset;
use larder_client::sampler::{Last, Shuffle};
use larder_origin::{Options, S3Server};

use crate::Error;
use crate::children::Ring;
use crate::matrix::{Random, npy_header};
use crate::measure::seconds;
use crate::report::Report;

/// An image of 224 x 224 x 3, beside a label of 8 bytes.
const IMAGE_BYTES: usize = 150_528;
const SAMPLES: usize = 2048;
const BATCH: u32 = 32;
const URI: &str = "s3://data/images";

/// The first epoch is not counted.
const EPOCHS: u64 = 5;

/// What is measured.
struct Case {
    name: String,
    nodes: usize,
    /// Memory of all nodes beside the bytes of all shards.
    memory: f64,
    shard_bytes: u64,
    shuffle: Shuffle,
    /// Seed, and the shortest time of an epoch.
    jobs: Vec<(u64, Duration)>,
    /// Whether loaders tell the nodes their plans.
    has_plans: bool,
}

/// Counts of the epochs that count, beside the data of one epoch.
struct Counted {
    fetched: f64,
    gets: f64,
    epoch_seconds: f64,
}

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("larder-bench-").tempdir_in("/dev/shm")?;
    let server = S3Server::start(folder.path(), &Options::default())?;
    write(&server.create_bucket("data")?)?;
    println!("\ndata larger than memory: what one epoch fetches of the data, GETs, seconds");
    println!("  {:<60}{:>10}{:>10}{:>10}", "", "fetched", "GETs", "epoch");
    for case in cases() {
        if std::env::var("BENCH_CASE").is_ok_and(|c| !case.name.contains(&c)) {
            continue;
        }
        index(&server, case.shard_bytes)?;
        let Counted { fetched, gets, epoch_seconds } = count(&server, &case)?;
        println!("  {:<60}{fetched:>10.3}{gets:>10.0}{epoch_seconds:>10.2}", case.name);
        report.add_shares(&case.name, &[("fetched of the data", fetched), ("GETs", gets)]);
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    let window = |shards| Shuffle::Window { shards: std::num::NonZeroU32::new(shards).expect("1") };
    let pace = Duration::from_secs(std::env::var("PACE").map_or(4, |p| p.parse().unwrap()));
    let mut cases = Vec::new();
    for has_plans in [false, true] {
        let plans = if has_plans { "plans" } else { "no plans" };
        for nodes in [1, 2] {
            for memory in [0.25, 0.5, 0.75] {
                cases.push(Case {
                    name: format!("1 job, {nodes} nodes, c {memory}, {plans}"),
                    nodes,
                    memory,
                    shard_bytes: 2 << 20,
                    shuffle: window(8),
                    jobs: vec![(1, pace)],
                    has_plans,
                });
            }
        }
        cases.push(Case {
            name: format!("2 jobs, 1 node, c 0.5, {plans}"),
            nodes: 1,
            memory: 0.5,
            shard_bytes: 2 << 20,
            shuffle: window(4),
            jobs: vec![(1, pace), (2, pace * 3 / 2)],
            has_plans,
        });
    }
    cases
}

/// Writes images and labels.
fn write(bucket: &Path) -> Result<(), Error> {
    let folder = bucket.join("images");
    std::fs::create_dir_all(&folder)?;
    let mut random = Random::new(7);
    let words = std::iter::repeat_with(|| random.next().to_le_bytes());
    let images: Vec<u8> = words.take(SAMPLES * IMAGE_BYTES / 8).flatten().collect();
    let header = npy_header("|u1", &format!("{SAMPLES}, {IMAGE_BYTES}"));
    std::fs::write(folder.join("image.npy"), [header, images].concat())?;
    let labels = (0..SAMPLES as u64).flat_map(u64::to_le_bytes).collect();
    let header = npy_header("<i8", &format!("{SAMPLES},"));
    std::fs::write(folder.join("label.npy"), [header, labels].concat())?;
    Ok(())
}

/// Indexes the data anew, with shards of this size.
fn index(server: &S3Server, shard_bytes: u64) -> Result<(), Error> {
    let program = std::env::current_exe()?.with_file_name("larder");
    let mut command = Command::new(&program);
    command.args(["dataset", "index", URI, "--shard-bytes", &shard_bytes.to_string()]);
    let indexed = command.envs(server.env()).output();
    let indexed =
        indexed.map_err(|error| format!("{} (is it built?): {error}", program.display()))?;
    if indexed.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&indexed.stderr).into())
}

fn count(server: &S3Server, case: &Case) -> Result<Counted, Error> {
    let bytes = (SAMPLES * (IMAGE_BYTES + 8)) as f64;
    let memory = (bytes * case.memory / case.nodes as f64) as u64;
    let ring = Ring::start("s3://data", &server.env(), case.nodes, memory)?;
    let barrier = Arc::new(Barrier::new(case.jobs.len() + 1));
    let jobs: Vec<_> = case
        .jobs
        .iter()
        .map(|&(seed, pace)| {
            let (barrier, address) = (Arc::clone(&barrier), ring.address().to_owned());
            let (shuffle, has_plans) = (case.shuffle, case.has_plans);
            thread::spawn(move || -> Result<f64, Error> {
                let dataset = Dataset::open(URI, Some(&address))?;
                let loader = dataset.loader().batch_size(BATCH).seed(seed).last(Last::Uneven);
                let loader = loader.shuffle(shuffle).quiet();
                let mut loader = if has_plans { loader } else { loader.unannounced() }.build()?;
                let mut total = 0.0;
                for epoch in 0..EPOCHS {
                    if epoch == 1 {
                        barrier.wait();
                        barrier.wait();
                    }
                    let (took, done) = seconds(|| run(&mut loader, epoch, pace));
                    done?;
                    total += if epoch > 0 { took } else { 0.0 };
                }
                #[expect(clippy::cast_precision_loss, reason = "few epochs")]
                Ok(total / (EPOCHS - 1) as f64)
            })
        })
        .collect();
    barrier.wait();
    server.reset_counts();
    barrier.wait();
    let mut longest = 0.0_f64;
    for job in jobs {
        longest = longest.max(job.join().map_err(|_| "a job panicked")??);
    }
    let counts = server.counts();
    if let Ok(pattern) = std::env::var("BENCH_METRICS") {
        let out =
            Command::new("curl").arg("-s").arg(format!("{}/metrics", ring.address())).output()?;
        for line in String::from_utf8_lossy(&out.stdout)
            .lines()
            .filter(|l| !l.starts_with('#') && pattern.split(',').any(|p| l.contains(p)))
        {
            println!("    {line}");
        }
    }
    let epochs = (EPOCHS - 1) as f64 * case.jobs.len() as f64;
    Ok(Counted {
        fetched: counts.bytes_sent as f64 / bytes / epochs,
        gets: counts.object_reads as f64 / epochs,
        epoch_seconds: longest,
    })
}

/// Reads an epoch in at least this time.
fn run(loader: &mut larder_client::Loader, epoch: u64, pace: Duration) -> Result<(), Error> {
    let step = pace / u32::try_from(SAMPLES)?.div_ceil(BATCH);
    for batch in loader.epoch(epoch)? {
        std::hint::black_box(batch?.len());
        thread::sleep(step);
    }
    Ok(())
}
