//! Refuses pipes, sockets and devices among local files, without opening them. Opening a pipe waits
//! for its writer, without a limit, on a thread that other calls need.

use std::{
    fs::{self, FileType},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use super::{Origin, OriginError};
use crate::{OriginUri, Scheme};

impl Origin {
    /// Refuses special files. Whether the file exists and is readable shows when it is opened.
    pub(super) async fn check_kind(&self, object: &OriginUri) -> Result<(), OriginError> {
        if object.scheme() != Scheme::File {
            return Ok(());
        }
        let path = Path::new("/").join(object.path());
        let looked = self.local.run(object, move || fs::metadata(path)).await;
        match looked.map_err(|why| why.into_error(object))? {
            Ok(found) if is_special(found.file_type()) => Err(OriginError::Denied {
                object: object.clone(),
                why: "it is a pipe, a socket or a device, and no file".to_owned(),
                remedy: None,
            }),
            _ => Ok(()),
        }
    }
}

fn is_special(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::read::Target;
    use super::*;

    #[tokio::test]
    async fn refuses_a_pipe_without_waiting() {
        let home = tempfile::tempdir().unwrap();
        let made = Command::new("mkfifo").arg(home.path().join("pipe")).status().unwrap();
        assert!(made.success());
        let prefix = OriginUri::parse(&format!("file://{}", home.path().display())).unwrap();
        let pipe = prefix.join("pipe").unwrap();
        let origin = Origin::connect(&prefix).await.unwrap();
        let refused =
            |why: &dyn std::fmt::Display| assert!(why.to_string().contains("a pipe"), "{why}");
        refused(&origin.get(&pipe, 100).await.unwrap_err());
        refused(&origin.head(&pipe).await.unwrap_err());
        let target = Target { object: pipe, etag: None, version: None, size_bytes: 10 };
        refused(&origin.read_header(&target, 0, 10).await.unwrap_err());
    }
}
