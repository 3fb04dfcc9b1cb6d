//! The rules of an index over a million keys, beside the listing alone.
//!
//! A child of this process lists a prefix through the real client, in turns alone and for an index.
//! The index is refused for an option right after its rules, before it reads a file. The store is a
//! socket in this process that answers with pages of made-up keys, as S3 would.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::{fmt::Write as _, io, str, thread};

use larder_dataset::{DatasetError, IndexOptions, Origin, OriginUri, index};

use crate::Error;
use crate::measure::{begin, median};
use crate::report::Report;

/// The first argument of the process that lists, with the number of its rounds.
pub(crate) const LIST_ARGUMENT: &str = "list-keys";

const KEYS: usize = 1_000_000;
const PAGE_KEYS: usize = 1_000;
/// One key of so many is that of no data.
const LEFT_OUT_EACH: usize = 10;

pub(crate) fn measure(report: &mut Report) -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    let rounds = report.rounds().to_string();
    let done = Command::new(std::env::current_exe()?)
        .args([LIST_ARGUMENT, &rounds])
        .env("AWS_ENDPOINT_URL", address)
        .envs([("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")])
        .output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    let (mut alone, mut with_rules, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for line in String::from_utf8(done.stdout)?.lines() {
        let (one, other) = line.split_once(' ').ok_or("two figures a line")?;
        let (one, other): (f64, f64) = (one.parse()?, other.parse()?);
        alone.push(one);
        with_rules.push(other);
        ratios.push(other / one);
    }
    let title = format!("CPU of a listing of {KEYS} keys ({:.2} x)", median(ratios));
    report.add_times(
        &title,
        &["the listing alone", "with the rules of an index"],
        &[alone, with_rules],
    );
    Ok(())
}

/// The work of the process that lists: prints the CPU seconds of each round.
pub(crate) fn list(rounds: &str) -> Result<(), Error> {
    let uri = OriginUri::parse("s3://data/many")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let origin = runtime.block_on(Origin::connect(&uri))?;
    // Tensors have no columns to choose.
    let options = IndexOptions { columns: Some(Vec::new()), ..IndexOptions::default() };
    for _ in 0..rounds.parse()? {
        let begun = begin(None);
        assert_eq!(runtime.block_on(origin.list(&uri))?.len(), KEYS);
        let alone = begun.end(0).client_cpu;
        let begun = begin(None);
        let refused = runtime.block_on(index(&origin, &uri, &options, &|_| {}));
        let with_rules = begun.end(0).client_cpu;
        assert!(matches!(refused, Err(DatasetError::Option { option: "columns", .. })));
        println!("{} {}", alone.as_secs_f64(), with_rules.as_secs_f64());
    }
    Ok(())
}

/// Answers requests for pages of the listing until the client hangs up.
fn serve(stream: TcpStream) -> io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let (mut line, mut begins) = (String::new(), None);
    while requests.read_line(&mut line)? > 0 {
        if let Some((_, token)) = line.split_once("continuation-token=") {
            begins = str::parse(token.split(['&', ' ']).next().unwrap_or_default()).ok();
        }
        if line == "\r\n" {
            let page = page(begins.take().unwrap_or(0));
            let length = page.len();
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{page}")?;
        }
        line.clear();
    }
    Ok(())
}

fn page(begins: usize) -> String {
    let mut page = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>");
    let ends = begins + PAGE_KEYS;
    for number in begins..ends {
        let (folder, key) = (number / PAGE_KEYS, key(number));
        let _ = write!(
            page,
            "<Contents><Key>many/n{folder:08}/{key}</Key>\
             <LastModified>2026-11-28T00:00:00.000Z</LastModified>\
             <ETag>&quot;{number:032x}&quot;</ETag><Size>{}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>",
            50_000 + number
        );
    }
    let is_last = ends == KEYS;
    if !is_last {
        let _ = write!(page, "<NextContinuationToken>{ends}</NextContinuationToken>");
    }
    let _ = write!(page, "<IsTruncated>{}</IsTruncated></ListBucketResult>", !is_last);
    page
}

/// A file of data, or a leftover of each rule in turn.
fn key(number: usize) -> String {
    if !number.is_multiple_of(LEFT_OUT_EACH) {
        return format!("{number:016}.npy");
    }
    match number / LEFT_OUT_EACH % 6 {
        0 => format!("._{number:016}.npy"),
        1 => format!("__MACOSX/{number:016}.npy"),
        2 => format!("_temporary/{number:016}.npy"),
        3 => format!(".cache/{number:016}.npy"),
        4 => format!("cache-{number:016}.arrow"),
        _ => format!("{number:016}.txt"),
    }
}
