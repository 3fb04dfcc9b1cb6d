//! Reads rows from the origin, without a node: strict reads with a few retries.

use std::{ops::ControlFlow, time::Duration};

use larder_client::admin::{FetchError, Manifest, Origin, PartRead};

/// Tries of one read before it counts as failed.
const TRIES: u32 = 5;
/// Pause before the second try. It doubles before each further try.
const PAUSE: Duration = Duration::from_millis(200);

/// Exactly the bytes of one read, from exactly the indexed version.
pub(super) async fn exact(
    origin: &Origin,
    manifest: &Manifest,
    part: &PartRead,
) -> Result<Vec<u8>, FetchError> {
    let mut bytes = Vec::with_capacity(usize::try_from(part.bytes).unwrap_or(0));
    let mut tried = 1;
    loop {
        bytes.clear();
        let mut sink = |chunk: &[u8]| {
            bytes.extend_from_slice(chunk);
            ControlFlow::Continue(())
        };
        match origin.read_exact_range(manifest, part, &mut sink).await {
            Ok(()) => return Ok(bytes),
            Err(error) if error.is_retryable() && tried < TRIES => {
                tokio::time::sleep(PAUSE * 2_u32.pow(tried - 1)).await;
                tried += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
