//! The demo's S3 server: what it says about itself, and what it counts.

use std::{path::PathBuf, process::Stdio};

use larder_client::Dataset;
use serde::Deserialize;

use super::{
    http,
    process::{Child, Programs},
};
use crate::{
    error::{Exit, Failure},
    output::units,
};

/// The running server.
pub(super) struct Origin {
    said: Said,
    files: PathBuf,
    _child: Child,
}

/// The server's first line.
#[derive(Debug, Deserialize)]
struct Said {
    endpoint: String,
    access_key: String,
    secret_key: String,
    region: String,
    counts_endpoint: String,
    dataset: Written,
}

/// The dataset it wrote.
#[derive(Debug, Deserialize)]
struct Written {
    uri: String,
    files: u64,
    bytes: u64,
}

/// What the server was asked for and sent, since it started.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) bytes_sent: u64,
}

impl Origin {
    /// Starts the server, which writes the data first.
    pub(super) fn start(programs: &Programs, samples: u64) -> Result<Self, Failure> {
        let buckets = programs.folder.join("buckets");
        std::fs::create_dir(&buckets)
            .map_err(|error| Failure::file("make the folder", &buckets, &error))?;
        let mut command = programs.command("larder-demo-origin");
        command.arg("--dir").arg(&buckets).args(["--samples", &samples.to_string()]);
        let child = Child::start(programs, "larder-demo-origin", &mut command)?;
        let said: Said = child.said()?;
        let key = said.dataset.uri.trim_start_matches("s3://");
        Ok(Self { files: buckets.join(key), said, _child: child })
    }

    /// Indexes the data as a user would: `larder dataset index`.
    pub(super) fn index(&self, programs: &Programs, shard_bytes: &str) -> Result<(), Failure> {
        let failed = |why: String| Failure::new(Exit::Failed, "the data was not indexed").why(why);
        let mut command = programs.command("larder");
        command
            .args(["dataset", "index", self.dataset(), "--shard-bytes", shard_bytes, "-o", "json"])
            .envs(self.settings())
            .stdin(Stdio::null());
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// The address of the dataset.
    pub(super) fn dataset(&self) -> &str {
        &self.said.dataset.uri
    }

    /// Bytes of its files.
    pub(super) fn bytes(&self) -> u64 {
        self.said.dataset.bytes
    }

    /// What it serves, for people.
    pub(super) fn words(&self, dataset: &Dataset) -> String {
        format!(
            "{}: {} photographs in {} .safetensors files, {}, on an S3 server",
            self.dataset(),
            units::count(dataset.samples()),
            self.said.dataset.files,
            units::bytes(self.bytes()),
        )
    }

    /// The folder that the server serves the dataset from.
    pub(super) fn files(&self) -> &std::path::Path {
        &self.files
    }

    /// The variables by which programs find the server.
    pub(super) fn settings(&self) -> [(&'static str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.said.endpoint),
            ("AWS_ACCESS_KEY_ID", &self.said.access_key),
            ("AWS_SECRET_ACCESS_KEY", &self.said.secret_key),
            ("AWS_REGION", &self.said.region),
        ]
    }

    /// What the server counted so far.
    pub(super) fn counts(&self) -> Result<Counts, Failure> {
        let failed = |why: String| {
            Failure::new(Exit::Failed, "the S3 server does not say what it counted").why(why)
        };
        let answer = http::get(&self.said.counts_endpoint);
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&answer).map_err(|error| failed(format!("{error} in {answer:?}")))
    }
}
