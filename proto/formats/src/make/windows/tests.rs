//! Windows of random documents, cut into random stretches, equal those of the whole stream.

use proptest::prelude::*;

use super::*;

/// The windows over a whole stream.
fn expected(windows: &Windows, documents: &[Vec<u16>]) -> Vec<Vec<u8>> {
    let mut stream = Vec::new();
    for document in documents {
        document.iter().for_each(|token| stream.extend_from_slice(&token.to_le_bytes()));
        stream.extend_from_slice(&windows.between);
    }
    let (window, stride) = (usize_of(windows.window_bytes()), usize_of(windows.stride_bytes()));
    let begins = (0..stream.len()).step_by(stride);
    let whole = begins.filter_map(|begin| stream.get(begin..begin + window));
    whole.map(<[u8]>::to_vec).collect()
}

/// The windows that blocks over stretches of so many documents make.
fn made(windows: &Windows, documents: &[Vec<u16>], sizes: &[usize]) -> Vec<Vec<u8>> {
    let mut builder = WindowsBuilder::new(windows).unwrap();
    let (mut file, mut rest) = (Vec::new(), documents);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (own, behind) = rest.split_at((*size).min(rest.len()));
        rest = behind;
        let lengths: Vec<u32> =
            own.iter().map(|document| u32::try_from(document.len() * 2).unwrap()).collect();
        let begin = file.len();
        own.iter().flatten().for_each(|token| file.extend_from_slice(&token.to_le_bytes()));
        let most = usize_of(builder.tail_bytes());
        let tail = file[begin..][(file.len() - begin).saturating_sub(most)..].to_vec();
        let range = begin as u64..file.len() as u64;
        let stretch = Stretch { range, lengths: &lengths, block: None, tail };
        builder.push(&stretch).unwrap();
    }
    let (rows, blocks, recipes) = builder.finish();
    let mut found = Vec::new();
    for placed in &blocks {
        let stored = &file[usize_of(placed.range.start)..usize_of(placed.range.end)];
        let wanted = RowsWanted {
            rows: placed.rows.into(),
            row_bytes: Some(windows.window_bytes()),
            scalar_bytes: windows.element_bytes,
        };
        let mut put = |bytes: &[u8], _: &[u32]| {
            found.extend(bytes.chunks(usize_of(windows.window_bytes())).map(<[u8]>::to_vec));
            Ok(())
        };
        placed.block.make(wanted, stored, recipes.as_bytes(), &mut put).unwrap();
    }
    assert_eq!(found.len() as u64, rows);
    found
}

proptest! {
    #[test]
    fn windows_do_not_depend_on_the_stretches(
        documents in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..9), 0..40),
        sizes in prop::collection::vec(1_usize..6, 1..5),
        (window, stride) in (1_u64..20, 1_u64..25),
        separated in any::<bool>(),
    ) {
        let between = if separated { vec![7, 0] } else { Vec::new() };
        let windows = Windows { element_bytes: 2, window, stride, between };
        prop_assert_eq!(made(&windows, &documents, &sizes), expected(&windows, &documents));
    }
}

#[test]
fn recipe_that_claims_too_little_memory_is_refused() {
    let windows = Windows { element_bytes: 2, window: 4, stride: 4, between: Vec::new() };
    let mut builder = WindowsBuilder::new(&windows).unwrap();
    let stretch = Stretch { range: 0..8, lengths: &[8], block: None, tail: vec![0; 6] };
    builder.push(&stretch).unwrap();
    let (_, blocks, recipes) = builder.finish();
    let Block::Recipe(block) = blocks[0].block else { panic!("a recipe") };
    let small = Block::Recipe(RecipeBlock { decoded_bytes: 1, ..block });
    let wanted = RowsWanted { rows: 1, row_bytes: Some(8), scalar_bytes: 2 };
    let make = |block: Block, wanted, stored: &[u8]| {
        block.make(wanted, stored, recipes.as_bytes(), &mut |_, _| Ok(())).err().map(|f| f.why)
    };
    assert_eq!(make(blocks[0].block, wanted, &[0; 8]), None);
    assert_eq!(make(small, wanted, &[0; 8]).as_deref(), Some("takes more memory than it says"));
    assert_eq!(make(blocks[0].block, wanted, &[0; 6]).as_deref(), Some("end 1 windows too early"));
    let other = RowsWanted { scalar_bytes: 4, ..wanted };
    assert!(make(blocks[0].block, other, &[0; 8]).is_some());
}

#[test]
fn damaged_recipes_are_faults() {
    let windows = Windows { element_bytes: 2, window: 4, stride: 3, between: vec![7, 0] };
    let mut builder = WindowsBuilder::new(&windows).unwrap();
    for range in [0..8, 8..20] {
        let lengths = [4, u32::try_from(range.end - range.start).unwrap() - 4];
        let stretch = Stretch { range, lengths: &lengths, block: None, tail: vec![1; 6] };
        builder.push(&stretch).unwrap();
    }
    let (_, blocks, recipes) = builder.finish();
    for at in 0..recipes.as_bytes().len() {
        for byte in 0..=u8::MAX {
            let mut damaged = recipes.as_bytes().to_vec();
            damaged[at] = byte;
            for placed in &blocks {
                let rows = placed.rows.into();
                let wanted = RowsWanted { rows, row_bytes: Some(8), scalar_bytes: 2 };
                let stored = vec![1; usize_of(placed.range.end - placed.range.start)];
                // Made or refused, but never a panic.
                let _ = placed.block.make(wanted, &stored, &damaged, &mut |_, _| Ok(()));
            }
        }
    }
}
