//! Damaged and hostile files: a fault, never a panic, and little memory.

use std::time::Duration;

use larder_formats::{Block, Rows, RowsWanted};

use super::{ALLOCATOR, FILES, fixture, make, read, scan};

/// Most memory beside the file. The fixtures take less than a mebibyte.
const MEMORY_MAX: usize = 64 << 20;
const FULL_SECONDS: u64 = 20;

/// Scans and makes a file, under a limit of memory. Returns whether it was read to its end.
fn is_read(file: &[u8], seed: u64) -> bool {
    let before = ALLOCATOR.allocated();
    ALLOCATOR.set_limit(before + MEMORY_MAX).unwrap();
    let read = scan(file, None, seed)
        .is_ok_and(|table| table.columns.iter().all(|column| make(column, file).is_ok()));
    ALLOCATOR.set_limit(usize::MAX).unwrap();
    read
}

/// Changes some bytes: near the end, where the footer is, more often than elsewhere.
fn damage(file: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..4) {
        let tail = file.len().min(2048);
        let at = match random.bool() {
            true => random.usize(0..file.len()),
            false => file.len() - 1 - random.usize(0..tail),
        };
        match random.u8(0..6) {
            0 => file[at] ^= 1 << random.u8(0..8),
            1 => file[at] = random.u8(..),
            2 => file[at] = [0, 0xFF, 0x7F, 0x80][random.usize(0..4)],
            3 => file[at..].iter_mut().take(8).for_each(|byte| *byte = 0xFF),
            4 => {
                let end = file.len().min(at + random.usize(1..40));
                file.drain(at..end);
            }
            _ => {
                let more: Vec<u8> = (0..random.usize(1..40)).map(|_| random.u8(..)).collect();
                file.splice(at..at, more);
            }
        }
        if file.is_empty() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a long run ends by the clock")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn damaged_files_are_faults() {
    let full = std::env::var_os("LARDER_TEST_FULL").is_some();
    let (begun, mut random) = (now(), fastrand::Rng::with_seed(5));
    let mut files = FILES.map(|name| fixture(&format!("{name}.parquet"))).to_vec();
    let others = ["hyparquet", "parquetjs_snappy", "parquetjs_gzip", "fastparquet_lz4"];
    files.extend(others.map(|name| read("parquet_writers", &format!("{name}.parquet"))));
    files.extend(["nested", "nested_v2"].map(|name| fixture(&format!("{name}.parquet"))));
    let (mut rounds, mut faults) = (0u64, 0u64);
    let goes_on = |rounds: u64| match full {
        true => begun.elapsed() < Duration::from_secs(FULL_SECONDS),
        false => rounds < 3_000,
    };
    while goes_on(rounds) {
        let mut file = files[random.usize(0..files.len())].clone();
        damage(&mut file, &mut random);
        rounds += 1;
        faults += u64::from(!is_read(&file, rounds));
    }
    assert!(faults > rounds / 4, "{faults} faults in {rounds} files");
}

#[test]
fn files_that_are_cut_are_faults() {
    let file = fixture("groups.parquet");
    for length in (0..file.len()).step_by(97) {
        assert!(!is_read(&file[..length], 1), "{length} bytes");
    }
    assert!(is_read(&file, 1));
}

#[test]
fn deep_metadata_is_a_fault() {
    // A field of the footer that holds a struct in a struct, and so on.
    let mut file = b"PAR1".to_vec();
    let footer = [vec![0x9C; 10_000], vec![0; 10_000]].concat();
    file.extend_from_slice(&footer);
    file.extend_from_slice(&u32::try_from(footer.len()).unwrap().to_le_bytes());
    file.extend_from_slice(b"PAR1");
    let fault = scan(&file, None, 1).unwrap_err();
    assert!(fault.why.contains("more than 32 levels deep"), "{fault:?}");
}

#[test]
fn false_counts_take_no_memory() {
    // A list of row groups that claims 2^32 elements.
    let mut file = b"PAR1".to_vec();
    let footer = [0x49, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F];
    file.extend_from_slice(&footer);
    file.extend_from_slice(&u32::try_from(footer.len()).unwrap().to_le_bytes());
    file.extend_from_slice(b"PAR1");
    assert!(!is_read(&file, 1));
    // A footer that claims more bytes than the file has, and one of 4 GiB.
    for length in [1_000u32, u32::MAX] {
        let mut file = b"PAR1PAR1".to_vec();
        file.extend_from_slice(&length.to_le_bytes());
        file.extend_from_slice(b"PAR1");
        let fault = scan(&file, None, 1).unwrap_err();
        assert_eq!(fault.field, "footer");
    }
}

#[test]
fn damaged_recipes_are_faults() {
    let file = fixture("nested.parquet");
    let table = scan(&file, None, 1).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..20_000 {
        let column = &table.columns[random.usize(0..table.columns.len())];
        let Rows::Blocks(blocks) = &column.rows else { panic!("no blocks") };
        let placed = &blocks.blocks[random.usize(0..blocks.blocks.len())];
        let mut recipes = blocks.recipes.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..recipes.len());
            recipes[at] = [random.u8(..), 0, 1, 0x7F, 0xFF][random.usize(0..5)];
        }
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let stored = &file[at(placed.range.start)..at(placed.range.end)];
        let row_bytes = (!column.ragged).then_some(1);
        let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes: 1 };
        let before = ALLOCATOR.allocated();
        ALLOCATOR.set_limit(before + MEMORY_MAX).unwrap();
        // Made or refused, but never a panic.
        let _ = placed.block.make(wanted, stored, &recipes, &mut |_, _| Ok(()));
        ALLOCATOR.set_limit(usize::MAX).unwrap();
    }
}

#[test]
fn damaged_blocks_are_faults() {
    let file = fixture("boxes.parquet");
    let table = scan(&file, None, 1).unwrap();
    let (mut random, mut made, mut faults) = (fastrand::Rng::with_seed(12), 0, 0);
    for _ in 0..20_000 {
        let column = &table.columns[random.usize(0..table.columns.len())];
        let Rows::Blocks(blocks) = &column.rows else { panic!("no blocks") };
        let placed = &blocks.blocks[random.usize(0..blocks.blocks.len())];
        let mut bytes = placed.block.to_bytes();
        bytes[random.usize(0..8)] = random.u8(0..8);
        let Some(block) = Block::from_bytes(bytes, &[]) else { continue };
        let mut stored = file[usize::try_from(placed.range.start).unwrap()..].to_vec();
        stored.truncate(usize::try_from(placed.range.end - placed.range.start).unwrap());
        if random.bool() && !stored.is_empty() {
            let at = random.usize(0..stored.len());
            stored[at] = random.u8(..);
        }
        let scalar_bytes = column.dtype.size_bytes();
        let row_bytes = (!column.ragged).then_some(scalar_bytes);
        let wanted = RowsWanted { rows: placed.rows.into(), row_bytes, scalar_bytes };
        let before = ALLOCATOR.allocated();
        ALLOCATOR.set_limit(before + MEMORY_MAX).unwrap();
        match block.make(wanted, &stored, &[], &mut |_, _| Ok(())) {
            Ok(()) => made += 1,
            Err(_) => faults += 1,
        }
        ALLOCATOR.set_limit(usize::MAX).unwrap();
    }
    assert!(made > 100 && faults > 100, "{made} made, {faults} faults");
}
