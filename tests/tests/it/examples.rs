//! The examples for Rust, run as their readers would run them.

use std::{collections::HashSet, process::Command};

use larder_tests::{NodeOptions, NodeProcess, PythonDataset, node::binary};
use tempfile::TempDir;

const SAMPLES: u64 = 128;

/// A dataset of images in a local folder, indexed by its labels, and a node over it.
struct Data {
    folder: TempDir,
    uri: String,
    node: NodeProcess,
}

impl Data {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let images = folder.path().join("images");
        let written = PythonDataset::images(&images, 2, 64, &[8, 8]);
        assert_eq!(written.samples(), SAMPLES);
        let uri = format!("file://{}", images.display());
        let mut index = Command::new(binary("larder"));
        let indexed = index.args(["dataset", "index", &uri, "--key", "label", "-q"]).status();
        assert!(indexed.expect("larder runs").success());
        let node = NodeProcess::start(&NodeOptions::new("a", &uri));
        Self { folder, uri, node }
    }

    /// Runs an example on the dataset to its end, and returns its output.
    fn example(&self, name: &str, words: &[&str], env: &[(&str, &str)]) -> String {
        let mut example = Command::new(binary(&format!("examples/{name}")));
        example.arg(&self.uri).args(words).envs(env.iter().copied());
        let done = example.env("LARDER_CLUSTER", self.node.address()).output();
        let done = done.expect("the example starts");
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}: {}: {error}", done.status);
        String::from_utf8(done.stdout).expect("the example prints UTF-8")
    }
}

/// The samples that an example printed, batch by batch.
fn samples(output: &str) -> Vec<Vec<u64>> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("samples "));
    lines.map(|list| serde_json::from_str(list).expect("a list of samples")).collect()
}

/// Asserts that the batches have every sample once.
fn assert_complete(batches: &[Vec<u64>]) {
    let mut seen = batches.concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..SAMPLES).collect::<Vec<_>>());
}

#[test]
fn first_batch_prints_samples_and_tensors() {
    let output = Data::new().example("first_batch", &[], &[]);
    let batches = samples(&output);
    assert_eq!(batches.len(), 1, "{output}");
    assert_eq!(batches[0].iter().collect::<HashSet<_>>().len(), 32);
    assert!(output.starts_with("128 samples\n"), "{output}");
    assert!(output.contains("image: U8 [32, 8, 8]: 2048 bytes"), "{output}");
}

#[test]
fn take_by_key_reads_rows_in_the_order_of_keys() {
    let output = Data::new().example("take_by_key", &["55", "7", "100"], &[]);
    assert_eq!(samples(&output), [[55, 7, 100]]);
    assert!(output.contains("image: U8 [3, 8, 8]"), "{output}");
}

#[test]
fn resume_continues_after_the_last_batch() {
    let data = Data::new();
    let position = data.folder.path().join("position").display().to_string();
    let run = || samples(&data.example("resume", &[&position], &[]));
    let (first, second, third) = (run(), run(), run());
    assert_complete(&[first.clone(), second].concat());
    assert_eq!(third.len(), 2, "the next epoch has begun");
    assert_ne!(third, first);
}

#[test]
fn ranks_of_ddp_read_each_sample_once() {
    let data = Data::new();
    let rank = |rank| data.example("ddp", &[], &[("RANK", rank), ("WORLD_SIZE", "2")]);
    let ranks = [rank("0"), rank("1")].map(|output| samples(&output));
    assert_eq!(ranks.each_ref().map(Vec::len), [4, 4]);
    assert_complete(&ranks.concat());
}
