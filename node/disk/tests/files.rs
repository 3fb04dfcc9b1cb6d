//! Shard files on a real disk: they read back, damaged ones are refused, foreign files stay, and a
//! killed writer leaves no half file.

#![expect(clippy::unwrap_used, reason = "tests, and the helpers around them")]

use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use larder_base::{ShardId, SnapshotId};
use larder_disk::{ListedShard, Missed, PAGE_BYTES, PageBuffer, ShardFolder, ShardHeader};
use larder_extent::{ExtentId, ExtentLayout, Filling, PagePreference, PartSpec, Region, Sealed};
use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::TempDir;

const SNAPSHOT: SnapshotId = SnapshotId::from_bytes([3; 32]);

/// The folder in which a child writes until it is killed.
const WRITES_IN: &str = "LARDER_TEST_WRITES_IN";

fn shard(number: u8) -> ShardId {
    ShardId::from_bytes([number; 16])
}

/// A shard of 700 rows of 1000 bytes, whose bytes depend on its number.
fn sealed(number: u8) -> Sealed {
    let region = Region::Rows { rows: 700, row_bytes: 1000, stride_bytes: 1000 };
    let layout = ExtentLayout::new(&[region]).unwrap();
    let parts = vec![PartSpec { region: 0, range: 0..layout.region_bytes(0) }];
    let id = ExtentId(*shard(number).as_bytes());
    let filling = Filling::create(id, layout, parts, PagePreference::Auto).unwrap();
    let mut part = filling.take_part(0).unwrap();
    let bytes: Vec<u8> =
        (0..700_000_usize).map(|at| (at / 251).to_le_bytes()[0] ^ number).collect();
    part.write(&bytes).unwrap();
    part.finish().unwrap();
    filling.seal().unwrap()
}

fn folder() -> (TempDir, ShardFolder) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = ShardFolder::open(temporary.path().to_owned()).unwrap();
    (temporary, folder)
}

fn path_of(folder: &Path, shard: ShardId) -> PathBuf {
    let name = shard.to_string();
    folder.join(&name[..2]).join(name)
}

/// All bytes of the extent of a shard, in pieces that are no pages.
fn read_all(folder: &ShardFolder, shard: ShardId, extent_bytes: u64) -> Result<Vec<u8>, Missed> {
    let file = folder.read(shard, extent_bytes)?;
    let (mut buffer, mut all) = (PageBuffer::new(1 << 16), Vec::new());
    while (all.len() as u64) < extent_bytes {
        let at = all.len() as u64;
        let piece = file.read(at..extent_bytes.min(at + 50_001), &mut buffer)?;
        all.extend_from_slice(piece);
    }
    Ok(all)
}

#[test]
fn shards_read_back_as_they_were_sealed() {
    let shared_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let on_disk = tempfile::tempdir().unwrap();
    // Shared memory may refuse direct I/O. Then both go through the page cache.
    for temporary in [&on_disk, &shared_memory] {
        let folder = ShardFolder::open(temporary.path().to_owned()).unwrap();
        for number in 0..3 {
            let extent = sealed(number);
            folder.write(SNAPSHOT, &extent).unwrap();
            let bytes = extent.total_bytes();
            let header = *folder.read(shard(number), bytes).unwrap().header();
            let (digest, extent_bytes) = (extent.digest(), bytes);
            let expected =
                ShardHeader { shard: shard(number), snapshot: SNAPSHOT, extent_bytes, digest };
            assert_eq!(header, expected);
            let read = read_all(&folder, shard(number), bytes).unwrap();
            assert!(read == extent.bytes(), "shard {number}, direct {}", folder.is_direct());
        }
        let mode = fs::metadata(path_of(temporary.path(), shard(0))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut listed = folder.list().unwrap();
        listed.sort_unstable_by_key(|one| one.shard);
        let file_bytes = sealed(0).total_bytes() + PAGE_BYTES as u64;
        let expected = [0, 1, 2].map(|number| ListedShard { shard: shard(number), file_bytes });
        assert_eq!(listed, expected);
        folder.remove(shard(1)).unwrap();
        folder.remove(shard(1)).unwrap();
        assert!(matches!(folder.read(shard(1), 4096), Err(Missed::NotThere)));
        assert_eq!(folder.list().unwrap().len(), 2);
    }
}

#[test]
fn ranges_are_read_from_the_pages_that_they_lie_in() {
    let (_temporary, folder) = folder();
    let extent = sealed(9);
    folder.write(SNAPSHOT, &extent).unwrap();
    let bytes = extent.total_bytes();
    let file = folder.read(shard(9), bytes).unwrap();
    let mut buffer = PageBuffer::new(2 * PAGE_BYTES);
    for (range, read) in [
        (0..1, 1),
        (4095..4097, 2),
        (4096..12_288, 8192),
        // The buffer holds no more.
        (4095..12_288, 4097),
        (bytes - 1..bytes, 1),
        (7..7, 0),
    ] {
        let begin = usize::try_from(range.start).unwrap();
        let found = file.read(range.clone(), &mut buffer).unwrap();
        assert!(found == &extent.bytes()[begin..begin + read], "{range:?}");
    }
    assert!(file.read(bytes - 1..bytes + 1, &mut buffer).is_err());
}

#[test]
fn files_that_are_not_those_of_the_shard_are_refused() {
    let (temporary, folder) = folder();
    let extent = sealed(1);
    let bytes = extent.total_bytes();
    let path = path_of(temporary.path(), shard(1));
    let refused = || match folder.read(shard(1), bytes) {
        Err(Missed::Corrupt(why)) => why,
        other => panic!("{other:?}"),
    };
    let again = || folder.write(SNAPSHOT, &extent).unwrap();
    let open = || fs::OpenOptions::new().write(true).open(&path).unwrap();

    again();
    open().set_len(bytes).unwrap();
    assert!(refused().contains("bytes in place of"));
    again();
    open().write_all_at(b"x", 100).unwrap();
    assert_eq!(refused(), "the header is damaged");
    again();
    open().write_all_at(&[2, 0, 0, 0], 8).unwrap();
    assert!(refused().contains("version 2 of shard files is newer"));
    folder.write(SNAPSHOT, &sealed(2)).unwrap();
    fs::rename(path_of(temporary.path(), shard(2)), &path).unwrap();
    assert!(refused().contains("it says that it is shard 0202"));
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    assert_eq!(refused(), "it is a link");
    fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    assert!(folder.read(shard(1), bytes).is_err());
    fs::remove_file(&path).unwrap();
    again();
    assert!(matches!(folder.read(shard(1), bytes + 4096), Err(Missed::Corrupt(_))));
    assert!(read_all(&folder, shard(1), bytes).unwrap() == extent.bytes());
}

#[test]
fn foreign_files_stay_and_half_files_go() {
    let (temporary, folder) = folder();
    folder.write(SNAPSHOT, &sealed(5)).unwrap();
    let writing = temporary.path().join("writing");
    let half = writing.join(shard(6).to_string());
    let upper = shard(0xab).to_string().to_uppercase();
    let foreign = [
        temporary.path().join("notes"),
        temporary.path().join("05").join("notes"),
        temporary.path().join("05").join(shard(6).to_string()),
        temporary.path().join("05").join(&upper),
        writing.join("notes"),
        writing.join(&upper),
    ];
    foreign.iter().chain([&half]).for_each(|path| fs::write(path, "x").unwrap());
    symlink("notes", writing.join(shard(7).to_string())).unwrap();
    let folder = ShardFolder::open(temporary.path().to_owned()).unwrap();
    assert!(!half.exists());
    assert!(foreign.iter().all(|path| path.exists()));
    assert!(writing.join(shard(7).to_string()).is_symlink());
    assert_eq!(folder.list().unwrap().len(), 1);
}

/// The child of the next test.
#[test]
fn writer_until_it_is_killed() {
    let Some(path) = env::var_os(WRITES_IN) else { return };
    let folder = ShardFolder::open(path.into()).unwrap();
    let extents: Vec<_> = (0..8).map(sealed).collect();
    println!("\n{WRITES_IN}");
    loop {
        extents.iter().for_each(|extent| folder.write(SNAPSHOT, extent).unwrap());
    }
}

#[test]
fn killed_writers_leave_whole_shards_and_no_half_file() {
    let rounds = if env::var_os("LARDER_TEST_FULL").is_some() { 500 } else { 50 };
    let temporary = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for round in 0..rounds {
        let mut writer = Command::new(env::current_exe().unwrap())
            .args(["--exact", "writer_until_it_is_killed", "--nocapture"])
            .env(WRITES_IN, temporary.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(writer.stdout.take().unwrap());
        assert!(said.lines().any(|line| line.unwrap() == WRITES_IN), "it writes");
        // Any moment will do.
        thread::park_timeout(Duration::from_micros(round * 7_919 % 30_000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let folder = ShardFolder::open(temporary.path().to_owned()).unwrap();
        assert_eq!(fs::read_dir(temporary.path().join("writing")).unwrap().count(), 0);
        for ListedShard { shard, .. } in folder.list().unwrap() {
            let extent = sealed(shard.as_bytes()[0]);
            let read = read_all(&folder, shard, extent.total_bytes()).unwrap();
            assert!(read == extent.bytes(), "{shard} after round {round}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}
