//! The table for people and the JSON for programs.

use std::path::Path;

use serde::Serialize;

use crate::Error;
use crate::measure::{Round, median};

/// All figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rounds: usize,
    load_at_start: String,
    load_at_end: String,
    figures: Vec<Figure>,
    times: Vec<Times>,
    shares: Vec<Shares>,
    policy: Vec<Policy>,
    larger: Vec<Larger>,
    not_measured: Vec<String>,
}

/// Seconds, without a baseline.
#[derive(Debug, Serialize)]
struct Times {
    title: String,
    contenders: Vec<Seconds>,
}

#[derive(Debug, Serialize)]
struct Seconds {
    name: String,
    median: f64,
    min: f64,
    max: f64,
}

/// Counted shares of a whole, from 0 to 1.
#[derive(Debug, Serialize)]
struct Shares {
    title: String,
    shares: Vec<(String, f64)>,
}

/// A simulated policy over data larger than memory.
#[derive(Debug, Serialize)]
pub(crate) struct Policy {
    pub(crate) case: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) jobs: usize,
    pub(crate) nodes: u32,
    pub(crate) cache_fraction: f64,
    pub(crate) hit_ratio: f64,
    /// Seconds of an epoch beside the larger of what its reads need and what the bandwidth allows.
    /// 1 for policies that are not simulated in time.
    pub(crate) epoch_time: f64,
}

/// What one epoch of a job causes at the origin, counted.
#[derive(Debug, Serialize)]
pub(crate) struct Larger {
    pub(crate) case: String,
    /// Bytes beside those of the data.
    pub(crate) fetched: f64,
    pub(crate) gets: f64,
    /// GETs beside those that fill the shards which memory can't hold.
    pub(crate) gets_of_bound: f64,
    pub(crate) epoch_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Figure {
    title: String,
    unit: &'static str,
    contenders: Vec<Contender>,
}

/// Medians over the rounds. The first contender is the baseline.
#[derive(Debug, Serialize)]
struct Contender {
    name: String,
    value: f64,
    min: f64,
    max: f64,
    /// Ratio to the baseline of the same round.
    ratio: f64,
    client_cpu_s_per_gib: f64,
    server_cpu_s_per_gib: f64,
    origin_cpu_s_per_gib: f64,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        let load = load();
        println!(
            "load {load}; medians of {rounds} rounds; the first line of each figure is its baseline; CPU in seconds per GiB"
        );
        println!("the baselines check nothing, every row of larder was compared with its CRC32C");
        Self {
            rounds,
            load_at_start: load,
            load_at_end: String::new(),
            figures: Vec::new(),
            times: Vec::new(),
            shares: Vec::new(),
            policy: Vec::new(),
            larger: Vec::new(),
            not_measured: Vec::new(),
        }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Adds a figure and prints it.
    pub(crate) fn add(
        &mut self,
        title: &str,
        unit: &'static str,
        names: &[&str],
        results: &[Vec<Round>],
    ) {
        self.add_scaled(title, unit, names, results, 1.0);
    }

    /// Adds the same rounds as samples per second.
    pub(crate) fn add_samples(
        &mut self,
        title: &str,
        names: &[&str],
        results: &[Vec<Round>],
        row_bytes: usize,
    ) {
        let row_bytes = u32::try_from(row_bytes).unwrap_or(u32::MAX);
        let scale = f64::from(1 << 30) / f64::from(row_bytes);
        self.add_scaled(title, "samples/s", names, results, scale);
    }

    /// Adds times in seconds.
    pub(crate) fn add_times(&mut self, title: &str, names: &[&str], results: &[Vec<f64>]) {
        println!("\n{title}: s");
        println!("  {:<40}{:>10}{:>10}{:>10}", "", "median", "min", "max");
        let seconds = |(name, times): (&&str, &Vec<f64>)| Seconds::new(name, times);
        let contenders: Vec<Seconds> = names.iter().zip(results).map(seconds).collect();
        for one in &contenders {
            println!("  {:<40}{:>10.3}{:>10.3}{:>10.3}", one.name, one.median, one.min, one.max);
        }
        self.times.push(Times { title: title.to_owned(), contenders });
    }

    /// Adds counted shares, from 0 to 1.
    pub(crate) fn add_shares(&mut self, title: &str, shares: &[(&str, f64)]) {
        println!("\n{title}: of 1");
        shares.iter().for_each(|(name, share)| println!("  {name:<40}{share:>10.3}"));
        let shares = shares.iter().map(|&(name, share)| (name.to_owned(), share)).collect();
        self.shares.push(Shares { title: title.to_owned(), shares });
    }

    /// Adds a simulated policy.
    pub(crate) fn add_policy(&mut self, figure: Policy) {
        self.policy.push(figure);
    }

    /// Adds counts of data larger than memory, and prints them.
    pub(crate) fn add_larger(&mut self, figure: Larger) {
        let Larger { case, fetched, gets, gets_of_bound, epoch_seconds } = &figure;
        println!(
            "  {case:<52}{fetched:>10.3}{gets:>10.0}{gets_of_bound:>10.2}{epoch_seconds:>10.2}"
        );
        self.larger.push(figure);
    }

    /// Notes a missing figure and the reason.
    pub(crate) fn not_measured(&mut self, what: &str, why: &str) {
        println!("\n{what}: not measured: {why}");
        self.not_measured.push(format!("{what}: {why}"));
    }

    fn add_scaled(
        &mut self,
        title: &str,
        unit: &'static str,
        names: &[&str],
        results: &[Vec<Round>],
        scale: f64,
    ) {
        println!("\n{title}: {unit}");
        println!(
            "  {:<40}{:>8}{:>8}{:>8}{:>7}{:>12}{:>12}{:>12}",
            "", "median", "min", "max", "ratio", "client cpu", "server cpu", "origin cpu"
        );
        let baseline = &results[0];
        let contender =
            |(name, rounds): (&&str, &Vec<Round>)| Contender::new(name, rounds, baseline, scale);
        let contenders: Vec<Contender> = names.iter().zip(results).map(contender).collect();
        for one in &contenders {
            println!(
                "  {:<40}{:>8.2}{:>8.2}{:>8.2}{:>7.2}{:>12.3}{:>12.3}{:>12.3}",
                one.name,
                one.value,
                one.min,
                one.max,
                one.ratio,
                one.client_cpu_s_per_gib,
                one.server_cpu_s_per_gib,
                one.origin_cpu_s_per_gib
            );
        }
        self.figures.push(Figure { title: title.to_owned(), unit, contenders });
    }

    /// Writes `results.json` into a folder.
    pub(crate) fn write(mut self, folder: &Path) -> Result<(), Error> {
        self.load_at_end = load();
        println!("\nload {}", self.load_at_end);
        std::fs::create_dir_all(folder)?;
        let path = folder.join("results.json");
        std::fs::write(&path, serde_json::to_vec_pretty(&self)?)?;
        println!("written: {}", path.display());
        Ok(())
    }
}

impl Contender {
    fn new(name: &str, rounds: &[Round], baseline: &[Round], scale: f64) -> Self {
        let rates = || rounds.iter().map(|round| round.rate() * scale);
        let cpu = |whose: usize| median(rounds.iter().map(|round| round.cpu()[whose]));
        let ratios = rounds.iter().zip(baseline).map(|(ours, plain)| ours.rate() / plain.rate());
        Self {
            name: name.to_owned(),
            value: median(rates()),
            min: rates().fold(f64::INFINITY, f64::min),
            max: rates().fold(0.0, f64::max),
            ratio: median(ratios),
            client_cpu_s_per_gib: cpu(0),
            server_cpu_s_per_gib: cpu(1),
            origin_cpu_s_per_gib: cpu(2),
        }
    }
}

impl Seconds {
    fn new(name: &str, times: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            median: median(times.iter().copied()),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            max: times.iter().copied().fold(0.0, f64::max),
        }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
