//! Epochs of data larger than memory: nodes and jobs against an S3 server that counts requests and
//! bytes. `make bench-larger`.
//!
//! Jobs run in this process, at a pace. What they cause at the origin in epochs 2 to 5 counts,
//! beside the bound for any cache. Counts do not depend on the machine.
//!
//! Non-goals: rates of a warm node (see the other parts).

pub(crate) mod large_rows;

use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use larder_base::limits;
use larder_client::sampler::{Last, Shuffle};
use larder_client::{Dataset, Loader};
use larder_origin::{Options, S3Server};

use crate::Error;
use crate::children::Ring;
use crate::matrix::{Random, npy_header};
use crate::measure::{alternate, begin, seconds};
use crate::report::{Larger, Report};

/// An image of 224 x 224 x 3, beside a label of 8 bytes.
const IMAGE_BYTES: usize = 150_528;
const SAMPLES: usize = 2048;
const BATCH: u32 = 32;
const URI: &str = "s3://data/images";
/// 158 shards.
const SHARD_BYTES: u64 = 2 << 20;

/// The first epoch is not counted.
const EPOCHS: u32 = 5;
/// Epochs of a round of data that fits.
const WARM_EPOCHS: u64 = 8;
/// The shortest time of an epoch of a job of speed 1.
const PACE: Duration = Duration::from_secs(8);

/// What is measured.
#[derive(Clone)]
struct Case {
    nodes: usize,
    /// Memory of all nodes beside the bytes of all shards.
    memory: f64,
    shuffle: Shuffle,
    jobs: Vec<Job>,
    /// Whether loaders tell the nodes their plans.
    has_plans: bool,
    /// Bytes a second of the origin beside those that a job of speed 1 reads.
    origin: Option<f64>,
    /// Whether the last node is killed in the middle of epoch 3.
    dies: bool,
}

/// A job: its seed, how often it reads an epoch while a job of speed 1 reads one, and its ranks.
#[derive(Clone, Copy)]
struct Job {
    seed: u64,
    speed: f64,
    ranks: u32,
}

/// The data, and what filling all its shards takes.
struct Data {
    bytes: f64,
    gets: f64,
}

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("larder-bench-").tempdir_in("/dev/shm")?;
    let server = S3Server::start(folder.path(), &Options::default())?;
    write(&server.create_bucket("data")?)?;
    index(&server, URI, SHARD_BYTES)?;
    let data = weigh(&server)?;
    println!("\ndata larger than memory: what an epoch of a job causes at the origin");
    println!("  {:<52}{:>10}{:>10}{:>10}{:>10}", "", "fetched", "GETs", "of bound", "seconds");
    for case in cases() {
        report.add_larger(count(folder.path(), &server, &data, &case)?);
    }
    warm(report, &server)
}

fn cases() -> Vec<Case> {
    let window =
        |shards: u32| Shuffle::Window { shards: NonZeroU32::MIN.saturating_add(shards - 1) };
    let job = |seed, speed| Job { seed, speed, ranks: 1 };
    let one = |nodes, memory, has_plans| Case {
        nodes,
        memory,
        // At most an eighth of memory.
        shuffle: window(if memory < 0.5 { 4 } else { 6 }),
        jobs: vec![job(1, 1.0)],
        has_plans,
        origin: None,
        dies: false,
    };
    let mut cases = Vec::new();
    for nodes in [1, 2] {
        cases.push(one(nodes, 0.5, false));
        cases.extend([0.25, 0.5, 0.75].map(|memory| one(nodes, memory, true)));
    }
    for has_plans in [false, true] {
        let jobs = vec![job(1, 1.0), job(2, 0.6)];
        cases.push(Case { jobs, shuffle: window(3), ..one(1, 0.5, has_plans) });
    }
    cases.push(Case { jobs: vec![Job { ranks: 8, ..job(1, 1.0) }], ..one(2, 0.5, true) });
    cases.push(Case { dies: true, ..one(2, 0.5, true) });
    cases.push(Case { origin: Some(0.5), ..one(1, 0.5, true) });
    cases.push(Case { shuffle: Shuffle::Global, ..one(1, 0.5, true) });
    cases
}

fn window(shards: u32) -> Shuffle {
    Shuffle::Window { shards: NonZeroU32::MIN.saturating_add(shards - 1) }
}

impl Case {
    fn title(&self) -> String {
        let (jobs, nodes) = (self.jobs.len(), self.nodes);
        let ranks = self.jobs[0].ranks;
        let ranks = if ranks > 1 { format!(" of {ranks} ranks") } else { String::new() };
        let origin = self.origin.map_or_else(String::new, |rate| format!(", origin at {rate}"));
        let plans = if self.has_plans { "plans" } else { "no plans" };
        let death = if self.dies { ", one killed" } else { "" };
        format!(
            "{jobs} jobs{ranks}, {nodes} nodes{death}, c {}, {}, {plans}{origin}",
            self.memory, self.shuffle
        )
    }
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

fn index(server: &S3Server, uri: &str, shard_bytes: u64) -> Result<(), Error> {
    let program = std::env::current_exe()?.with_file_name("larder");
    let mut command = Command::new(&program);
    command.args(["dataset", "index", uri, "--shard-bytes", &shard_bytes.to_string()]);
    let indexed = command.envs(server.env()).output();
    let indexed =
        indexed.map_err(|error| format!("{} (is it built?): {error}", program.display()))?;
    if indexed.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&indexed.stderr).into())
}

/// Returns the bytes of all shards, and the GETs that fill them.
fn weigh(server: &S3Server) -> Result<Data, Error> {
    let ring = Ring::start("s3://data", &server.env(), 1, 1 << 30)?;
    let snapshot = Dataset::open(URI, Some(ring.address()))?.whole_manifest()?;
    let shards =
        snapshot.leaves.iter().flat_map(|leaf| leaf.shards().map(move |shard| (leaf, shard)));
    let gets = shards.map(|(leaf, shard)| {
        snapshot.manifest.fill_plan(leaf, shard, limits::FILL_PART_BYTES).gets.len() as u64
    });
    Ok(Data { bytes: float(snapshot.manifest.total_bytes()), gets: float(gets.sum()) })
}

fn count(folder: &Path, server: &S3Server, data: &Data, case: &Case) -> Result<Larger, Error> {
    let narrow = case.origin.map(|share| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above zero")]
        let rate = (data.bytes / PACE.as_secs_f64() * share) as u64;
        S3Server::start(folder, &Options { rate: Some(rate), ..Options::default() })
    });
    let narrow = narrow.transpose()?;
    let server = narrow.as_ref().unwrap_or(server);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above zero")]
    let memory = (data.bytes * case.memory) as u64 / case.nodes as u64;
    let mut ring = Ring::start("s3://data", &server.env(), case.nodes, memory)?;
    let readers: u32 = case.jobs.iter().map(|job| job.ranks).sum();
    let begin = Arc::new(Barrier::new(readers as usize + 1));
    let mut reading = Vec::new();
    for &job in &case.jobs {
        for rank in 0..job.ranks {
            let (case, address) = (case.clone(), ring.address().to_owned());
            let begin = Arc::clone(&begin);
            reading.push(thread::spawn(move || read(&case, job, rank, &address, &begin)));
        }
    }
    begin.wait();
    server.reset_counts();
    begin.wait();
    if case.dies {
        pause(PACE.mul_f64(1.5));
        ring.kill_last();
    }
    let mut longest = 0.0_f64;
    for one in reading {
        longest = longest.max(one.join().map_err(|_| "a job panicked")??);
    }
    let counts = server.counts();
    let epochs = float(case.jobs.len() as u64) * f64::from(EPOCHS - 1);
    let (fetched, gets) = (float(counts.bytes_sent), float(counts.object_reads));
    Ok(Larger {
        case: case.title(),
        fetched: fetched / data.bytes / epochs,
        gets: gets / epochs,
        gets_of_bound: gets / epochs / (data.gets * (1.0 - case.memory).max(0.0)),
        epoch_seconds: longest,
    })
}

/// Warm epochs of data that fits, as fast as they go: without plans, and with them.
fn warm(report: &mut Report, server: &S3Server) -> Result<(), Error> {
    let ring = Ring::start("s3://data", &server.env(), 1, 1 << 30)?;
    let loader = || -> Result<_, Error> {
        let dataset = Dataset::open(URI, Some(ring.address()))?;
        let loader = dataset.loader().batch_size(BATCH).shuffle(window(6));
        Ok(loader.quiet())
    };
    let (mut without, mut with) = (loader()?.unannounced().build()?, loader()?.build()?);
    let round = |loader: &mut Loader| {
        let begun = begin(Some(ring.pid()));
        let mut bytes = 0;
        for epoch in 0..WARM_EPOCHS {
            for batch in loader.epoch(epoch)? {
                let batch = batch?;
                let tensors = batch.tensors().map(|tensor| std::hint::black_box(tensor.bytes()));
                bytes += tensors.map(<[u8]>::len).sum::<usize>();
            }
        }
        Ok::<_, Error>(begun.end(bytes))
    };
    let results =
        alternate(report.rounds(), &mut [&mut || round(&mut without), &mut || round(&mut with)])?;
    let title = format!("{WARM_EPOCHS} warm epochs in windows of 6 shards");
    report.add(&title, "GiB/s", &["plans off", "plans on"], &results);
    Ok(())
}

/// Reads as one rank of a job. Returns the mean time of the epochs that count.
fn read(case: &Case, job: Job, rank: u32, address: &str, begin: &Barrier) -> Result<f64, Error> {
    // Each rank has its own dataset, as each process has.
    let dataset = Dataset::open(URI, Some(address))?;
    let loader = dataset.loader().seed(job.seed).last(Last::Uneven).rank(rank, job.ranks);
    let loader = loader.batch_size(BATCH / job.ranks).shuffle(case.shuffle).quiet();
    let mut loader = if case.has_plans { loader } else { loader.unannounced() }.build()?;
    let step = PACE.div_f64(job.speed) / u32::try_from(SAMPLES)?.div_ceil(BATCH);
    let mut total = 0.0;
    for epoch in 0..EPOCHS {
        if epoch == 1 {
            begin.wait();
            begin.wait();
        }
        let (took, done) = seconds(|| run(&mut loader, epoch.into(), step));
        done?;
        total += if epoch > 0 { took } else { 0.0 };
    }
    Ok(total / f64::from(EPOCHS - 1))
}

/// Reads an epoch, a batch in each step of time at most.
fn run(loader: &mut Loader, epoch: u64, step: Duration) -> Result<(), Error> {
    let mut late = Duration::ZERO;
    for batch in loader.epoch(epoch)? {
        std::hint::black_box(batch?.len());
        let (took, ()) = seconds(|| pause(step.saturating_sub(late)));
        late = Duration::from_secs_f64(took).saturating_sub(step.saturating_sub(late));
    }
    Ok(())
}

fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the pace of a job is what is simulated")]
    thread::sleep(time);
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn float(count: u64) -> f64 {
    count as f64
}
