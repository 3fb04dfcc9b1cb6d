//! Requests of one kind to a store, for tests with faults: compares each answer with the right one.
//! Prints how many were right, and the first error.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_dataset::{Origin, OriginUri};

/// Requests in flight.
const TASKS: u64 = 32;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, prefix, count, keys, bytes] = &arguments[..] else {
        eprintln!("usage: larder-test-requests KIND PREFIX COUNT KEYS BYTES");
        return ExitCode::FAILURE;
    };
    larder_dataset::install_crypto();
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let work = Work {
        kind: kind.clone(),
        prefix: OriginUri::parse(prefix).expect("an address"),
        keys: number(keys),
        bytes: number(bytes),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(all(Arc::new(work), number(count))) {
        Ok(right) => {
            println!("{right}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The kind of the requests, and what the bucket has under the prefix: `keys` objects of `bytes`.
struct Work {
    kind: String,
    prefix: OriginUri,
    keys: u64,
    bytes: u64,
}

/// Makes `count` requests. Returns how many were right.
async fn all(work: Arc<Work>, count: u64) -> Result<u64, String> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.spawn(async move {
            // Each task has its own connection, so that a fault of one ends no other.
            let origin = Origin::connect(&work.prefix).await.map_err(|why| why.to_string())?;
            let mut right = 0;
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= count {
                    return Ok(right);
                }
                work.check(&origin, number).await?;
                right += 1;
            }
        });
    }
    let done: Vec<Result<u64, String>> = tasks.join_all().await;
    done.into_iter().sum()
}

impl Work {
    /// Makes one request.
    async fn check(&self, origin: &Origin, number: u64) -> Result<(), String> {
        let key = |name: String| self.prefix.join(&name).map_err(|why| why.to_string());
        let there = key(format!("f{:05}.npy", number % self.keys))?;
        let said = |why: larder_dataset::OriginError| why.to_string();
        let is_right = match self.kind.as_str() {
            "list" => origin.list(&self.prefix).await.map_err(said)?.len() as u64 == self.keys,
            "head" => origin.head(&there).await.map_err(said)?.size_bytes == self.bytes,
            "get" => {
                let (bytes, _) = origin.get(&there, self.bytes).await.map_err(said)?;
                bytes.len() as u64 == self.bytes && bytes.starts_with(b"\x93NUMPY")
            }
            "put" => {
                let object = key(format!("put/{number}"))?;
                let text = number.to_string();
                // A try whose answer was lost makes the next one find the object.
                origin.put_if_absent(&object, text.clone().into()).await.map_err(said)?;
                let (bytes, _) = origin.get(&object, 32).await.map_err(said)?;
                bytes == text
            }
            other => return Err(format!("no such kind: {other}")),
        };
        if is_right { Ok(()) } else { Err(format!("request {number}: a wrong answer")) }
    }
}
