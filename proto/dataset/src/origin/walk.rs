//! Lists a local folder that has names which no request can have. The library's listing ends at
//! the first of them.
//!
//! Non-goals: etags, which take a request for each file (`head`).

use std::path::Path;

use walkdir::WalkDir;

use super::{Listing, ObjectInfo, Origin, OriginError};
use crate::OriginUri;

impl Origin {
    /// Lists all files below a local folder, at most so many. Follows links, as the library does.
    pub(super) async fn walk(&self, prefix: &OriginUri, max: u32) -> Result<Listing, OriginError> {
        let folder = Path::new("/").join(prefix.path());
        let walked = self.local.run(prefix, move || walk(&folder, max));
        let walked = walked.await.map_err(|why| why.into_error(prefix))?;
        let failed = |why| OriginError::Failed { object: prefix.clone(), why };
        let listing = walked.map_err(failed)?;
        if listing.objects.len() + listing.unreadable.len() > max as usize {
            return Err(OriginError::TooMany { prefix: prefix.clone(), limit: max.into() });
        }
        Ok(listing)
    }
}

fn walk(folder: &Path, max: u32) -> Result<Listing, String> {
    let mut listing = Listing::default();
    for entry in WalkDir::new(folder).min_depth(1).follow_links(true) {
        let entry = match entry {
            Ok(entry) => entry,
            // A link to nothing, or a file that was deleted just now.
            Err(error) if error.io_error().is_some_and(is_absent) => continue,
            Err(error) => return Err(error.to_string()),
        };
        if !entry.file_type().is_file() {
            continue;
        }
        let path = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let size_bytes = entry.metadata().map_err(|error| error.to_string())?.len();
        match path.to_str() {
            Some(key) if !key.contains(|c: char| c.is_ascii_control()) => {
                let key = key.to_owned();
                listing.objects.push(ObjectInfo { key, size_bytes, etag: None, version: None });
            }
            _ => listing.unreadable.push(path.to_string_lossy().into_owned()),
        }
        if listing.objects.len() + listing.unreadable.len() > max as usize {
            break;
        }
    }
    Ok(listing)
}

fn is_absent(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}
