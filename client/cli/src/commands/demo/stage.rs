//! What every demo is given on: a folder of its own, and photographs on an S3 server, indexed.

use tempfile::TempDir;

use super::{origin::Origin, process::Programs};
use crate::{
    error::{Exit, Failure},
    output::units,
    progress::Progress,
};

/// The server, the programs and the folder; gone in this order when dropped.
pub(super) struct Stage {
    pub(super) origin: Origin,
    pub(super) programs: Programs,
    folder: TempDir,
}

impl Stage {
    /// Writes so many photographs, serves them, and indexes them in shards of this size.
    pub(super) fn set(
        progress: &Progress,
        samples: u64,
        shard_bytes: &str,
    ) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("larder-demo-").tempdir();
        let folder = folder.map_err(|error| {
            Failure::file("make a folder in", std::env::temp_dir().as_path(), &error)
                .hint("set TMPDIR to a folder that can be written")
        })?;
        let programs = Programs::find(folder.path())?;
        let count = units::count(samples);
        progress.say(&format!("writing {count} photographs and serving them over S3"));
        let origin = Origin::start(&programs, samples)?;
        progress.say("indexing them in place");
        origin.index(&programs, shard_bytes)?;
        Ok(Self { origin, programs, folder })
    }

    /// Removes everything.
    pub(super) fn clear(self) -> Result<(), Failure> {
        drop(self.origin);
        self.folder.close().map_err(|error| {
            Failure::new(Exit::Failed, "the demo's data could not be removed").why(error)
        })
    }
}
