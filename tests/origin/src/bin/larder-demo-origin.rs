//! The demo's origin: an S3 server on loopback that says where it is in one line of JSON and runs
//! until told to stop.
//!
//! It ends when its standard input closes (so that it never outlives the program that started it)
//! or by SIGTERM.

use std::error::Error;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use larder_origin::{ACCESS_KEY, Credentials, Options, REGION, S3Server, SECRET_KEY, demo_data};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

/// Serves the buckets in a directory over S3 on 127.0.0.1, until standard input closes. To keep it
/// in the background, give it an input that stays open: sleep infinity | larder-demo-origin ... &
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The directory with a sub-directory for each bucket.
    #[arg(long)]
    dir: PathBuf,
    /// The port on 127.0.0.1; 0 takes any.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Milliseconds added before each answer, as a far store would.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// Bytes a second of all objects together, as behind a narrow line; 0: as fast as it can.
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// A file with the credentials to accept, each a line of key, secret and perhaps a token. It is
    /// read ten times a second.
    #[arg(long)]
    keys: Option<PathBuf>,
    /// First write a data set of this many samples to s3://demo/images (0: none).
    #[arg(long, default_value_t = 0)]
    samples: u64,
    /// Samples in each file of that data set.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    per_file: u64,
}

/// The line on standard output.
#[derive(Serialize)]
struct Started {
    endpoint: String,
    access_key: &'static str,
    secret_key: &'static str,
    region: &'static str,
    counts_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: Option<Dataset>,
}

#[derive(Serialize)]
struct Dataset {
    uri: &'static str,
    #[serde(flatten)]
    written: demo_data::Written,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let dataset = match arguments.samples {
        0 => None,
        samples => {
            let written =
                demo_data::write(&arguments.dir.join("demo/images"), samples, arguments.per_file)?;
            Some(Dataset { uri: "s3://demo/images", written })
        }
    };
    let server = S3Server::start(
        &arguments.dir,
        &Options {
            port: arguments.port,
            counts_port: Some(0),
            latency: Duration::from_millis(arguments.latency_ms),
            rate: (arguments.rate > 0).then_some(arguments.rate),
        },
    )?;
    let started = Started {
        endpoint: server.endpoint(),
        access_key: ACCESS_KEY,
        secret_key: SECRET_KEY,
        region: REGION,
        counts_endpoint: server.counts_endpoint(),
        dataset,
    };
    let mut out = stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&started)?)?;
    out.flush()?;
    let server = Arc::new(server);
    if let Some(keys) = arguments.keys {
        let server = Arc::clone(&server);
        thread::spawn(move || follow(&keys, &server));
    }
    wait_for_the_end()
}

/// Accepts the credentials in a file, as they change.
fn follow(file: &Path, server: &S3Server) {
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        let of_line = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (access_key, secret_key) = (words.next()?, words.next()?);
            Some(Credentials { access_key, secret_key, session_token: words.next() })
        };
        let accepted: Vec<_> = text.lines().filter_map(of_line).collect();
        if !accepted.is_empty() {
            server.accept(accepted);
        }
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// Returns when standard input closes or SIGTERM or SIGINT arrives.
fn wait_for_the_end() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let input_closed = tokio::task::spawn_blocking(|| {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        });
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = input_closed => {}
        }
        Ok(())
    });
    // The thread that reads standard input may wait for ever; the process ends with it.
    runtime.shutdown_background();
    result
}
