//! A pipe in place of a file keeps no opening of a node.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_tests::{NodeOptions, NodeProcess, write_npy};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::openings::{connected, open};

/// Files and as many pipes, each of which takes the other's place.
const PLACES: usize = 64;

/// Exchanges pipes and files until told to stop. Leaves the files in place.
fn exchange(places: &[(PathBuf, PathBuf)], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for (file, pipe) in places.iter().chain(places) {
            let flags = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, file, AT_FDCWD, pipe, flags).expect("own files");
        }
    }
}

#[test]
fn pipes_that_replace_files_keep_no_opening() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let away = folder.path().join("away");
    std::fs::create_dir(&away).expect("a folder");
    let place = |number: usize| {
        let set = folder.path().join(format!("data/set-{number}"));
        std::fs::create_dir_all(&set).expect("a folder");
        let (file, pipe) = (set.join("x.npy"), away.join(number.to_string()));
        write_npy(&file, 16);
        mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
        (file, pipe)
    };
    let places: Vec<_> = (0..PLACES).map(place).collect();
    let data = format!("file://{}/data", folder.path().display());
    let node = NodeProcess::start(&NodeOptions::new("a", &data));
    let stop = AtomicBool::new(false);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(&places, &stop));
        let opened = runtime.block_on(async {
            let client = connected(&node).await;
            let mut opened = 0;
            for _ in 0..4 {
                let all = (0..PLACES).map(|number| {
                    tokio::spawn(open(client.clone(), format!("{data}/set-{number}"), ""))
                });
                for one in all.collect::<Vec<_>>() {
                    opened += usize::from(one.await.expect("no panic").is_ok());
                }
            }
            opened
        });
        eprintln!("{opened} of {} opened", 4 * PLACES);
        stop.store(true, Ordering::Relaxed);
    });
    runtime.block_on(async {
        let client = connected(&node).await;
        for number in 0..PLACES {
            let uri = format!("{data}/set-{number}");
            open(client.clone(), uri, "").await.expect("only files are there now");
        }
    });
}
