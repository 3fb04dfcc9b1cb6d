//! The folder of this user's run: files that need not outlive the host's uptime.
//!
//! It is `$XDG_RUNTIME_DIR/larder`, or `/tmp/larder-UID` if this user does not own the former.
//! Another user may have made a folder first, or a link in its place. So a folder is opened once,
//! without following links, and used only if this user owns it and no other user may write there.
//!
//! Thread rule: none; it only calls the file system. Non-goal: the names of the files within.

use std::{
    env,
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{fcntl::OFlag, unistd::geteuid};

/// The permission of other users to write.
pub const WRITE_OF_OTHERS: u32 = 0o022;

/// Returns the path of the folder, which may not exist.
pub fn run_folder() -> PathBuf {
    let run = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_ours = |run: &PathBuf| {
        run.is_absolute() && matches!(open_private(run, WRITE_OF_OTHERS), Ok(Some(_)))
    };
    run.filter(is_ours).map_or_else(
        || PathBuf::from(format!("/tmp/larder-{}", geteuid())),
        |run| run.join("larder"),
    )
}

/// Makes a folder for this user only, unless it exists.
///
/// # Errors
/// That of the file system.
pub fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(why),
        _ => Ok(()),
    }
}

/// Opens a folder that this user owns and that gives other users none of these permissions. `None`
/// if it does not exist.
///
/// # Errors
/// The folder is another's or a link, or lets others in.
pub fn open_private(path: &Path, refused_mode: u32) -> io::Result<Option<File>> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let folder = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = folder.metadata()?;
    let (owner, mode, us) = (found.uid(), found.mode() & 0o777, geteuid().as_raw());
    if owner != us {
        return refused(format!("it belongs to user {owner}, and we are user {us}"));
    }
    if mode & refused_mode != 0 {
        return refused(format!("its mode {mode:03o} lets others in"));
    }
    Ok(Some(folder))
}
