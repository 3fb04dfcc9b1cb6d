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
    /// To the baseline of the same round.
    ratio: f64,
    client_cpu_s_per_gib: f64,
    server_cpu_s_per_gib: f64,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        let load = load();
        println!(
            "load {load}; medians of {rounds} rounds; the first line of each figure is its baseline"
        );
        println!("the baselines check nothing, every row of larder was compared with its CRC32C");
        Self { rounds, load_at_start: load, load_at_end: String::new(), figures: Vec::new() }
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
            "  {:<36}{:>10}{:>10}{:>10}{:>8}{:>11}{:>11}",
            "", "median", "min", "max", "ratio", "cl cpu/GiB", "srv cpu/GiB"
        );
        let baseline = &results[0];
        let contender =
            |(name, rounds): (&&str, &Vec<Round>)| Contender::new(name, rounds, baseline, scale);
        let contenders: Vec<Contender> = names.iter().zip(results).map(contender).collect();
        for one in &contenders {
            println!(
                "  {:<36}{:>10.2}{:>10.2}{:>10.2}{:>8.2}{:>11.3}{:>11.3}",
                one.name,
                one.value,
                one.min,
                one.max,
                one.ratio,
                one.client_cpu_s_per_gib,
                one.server_cpu_s_per_gib
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
        let ratios = rounds.iter().zip(baseline).map(|(ours, plain)| ours.rate() / plain.rate());
        Self {
            name: name.to_owned(),
            value: median(rates()),
            min: rates().fold(f64::INFINITY, f64::min),
            max: rates().fold(0.0, f64::max),
            ratio: median(ratios),
            client_cpu_s_per_gib: median(rounds.iter().map(|round| round.cpu().0)),
            server_cpu_s_per_gib: median(rounds.iter().map(|round| round.cpu().1)),
        }
    }
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
