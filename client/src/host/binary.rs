//! Where the program `larder-node` is.

use std::{
    env,
    path::{Path, PathBuf},
};

use larder_base::ErrorKind;

use crate::Error;

const NAME: &str = "larder-node";

/// Where it is said to be, else beside the program that runs, else in `PATH`.
pub(super) fn find(told: Option<&Path>) -> Result<PathBuf, Error> {
    let named = env::var_os("LARDER_NODE_BIN").filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = named.or_else(|| told.map(Path::to_owned)) {
        return absolute(&path).ok_or_else(|| {
            let what = format!("there is no program {}", path.display());
            Error::new(ErrorKind::NotFound, what)
                .hint("set LARDER_NODE_BIN to where larder-node is")
        });
    }
    let beside = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = beside.into_iter().chain(env::split_paths(&path)).collect();
    folders.iter().find_map(|folder| absolute(&folder.join(NAME))).ok_or_else(missing)
}

/// The path from the root, if there is a file: the program is not started in our folder.
fn absolute(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| path.canonicalize().ok()).flatten()
}

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "no cache can be started on this host")
        .because("larder-node is neither beside the program that runs nor in PATH")
        .hint(
            "install the wheel of `make wheel`, which brings it, or set LARDER_NODE_BIN to where it is; \
             or name a cluster that runs",
        )
}
