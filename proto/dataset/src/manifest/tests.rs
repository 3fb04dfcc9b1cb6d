//! Tests of building, parsing and using manifests together.

use std::ops::Range;

use bytes::Bytes;
use larder_base::{RegionRef, RowRef, limits};
use larder_formats::{Inline, Rows, Spans};
use proptest::prelude::*;

use super::*;

mod hostile;

fn uri() -> OriginUri {
    OriginUri::parse("s3://bucket/data").unwrap()
}

fn strided(name: &str, elements: u64) -> TensorSpec {
    let locator = RowLocator::Strided { row_bytes: elements, stride_bytes: elements };
    let (name, shape, layout) = (name.into(), vec![elements], Layout::Column);
    TensorSpec { name, dtype: Dtype::U8, logical: Logical::Number, shape, locator, layout }
}

fn ragged(name: &str, layout: Layout) -> TensorSpec {
    let (locator, shape) = (RowLocator::Ragged, Vec::new());
    let (name, logical) = (name.into(), Logical::Bytes);
    TensorSpec { name, dtype: Dtype::U8, logical, shape, locator, layout }
}

fn object(key: &str, size_bytes: u64) -> ObjectSpec {
    let etag = Some(format!("\"{key}\""));
    ObjectSpec { key: key.into(), etag, version: None, size_bytes }
}

fn column(begin: u64, stride: u64) -> ColumnSpec {
    ColumnSpec { object: 0, rows: Rows::Strided { begin, stride } }
}

fn spans(rows: impl IntoIterator<Item = Range<u64>>) -> ColumnSpec {
    let mut spans = Spans::default();
    for row in rows {
        spans.push(row.start, u32::try_from(row.end - row.start).unwrap());
    }
    ColumnSpec { object: 0, rows: Rows::Spans(spans) }
}

fn inline<'a>(rows: impl IntoIterator<Item = &'a [u8]>) -> ColumnSpec {
    let mut values = Inline::default();
    rows.into_iter().for_each(|row| values.push(row));
    ColumnSpec { object: 0, rows: Rows::Inline(values) }
}

fn group(key: &str, rows: u64, size_bytes: u64, columns: Vec<ColumnSpec>) -> GroupSpec {
    GroupSpec { rows, objects: vec![object(key, size_bytes)], columns }
}

fn built(tensors: Vec<TensorSpec>, shard_bytes: u64, groups: Vec<GroupSpec>) -> Snapshot {
    let mut builder = ManifestBuilder::new(uri(), tensors, shard_bytes);
    groups.into_iter().for_each(|group| builder.push(group));
    builder.build().unwrap()
}

/// Makes two tensors of 10 and 3 bytes a row. Each object has all rows of the first, then of the
/// second.
fn pairs(rows: &[u64], shard_bytes: u64) -> Snapshot {
    let of = |(index, rows): (usize, &u64)| {
        let columns = vec![column(8, 10), column(8 + rows * 10, 3)];
        group(&format!("part-{index}"), *rows, 8 + rows * 13, columns)
    };
    let groups = rows.iter().enumerate().map(of).collect();
    built(vec![strided("image", 10), strided("label", 3)], shard_bytes, groups)
}

/// Makes rows as tars have them: members with gaps between them, a key and a class, and one row in
/// seven without bytes.
fn members(rows: &[u64], shard_bytes: u64) -> Snapshot {
    let tensors = vec![
        ragged("jpg", Layout::Spans),
        TensorSpec { layout: Layout::Spans, ..strided("fixed", 4) },
        TensorSpec { layout: Layout::Inline, ..strided("cls", 8) },
        ragged("__key__", Layout::Inline),
    ];
    let of = |(index, &rows): (usize, &u64)| {
        let (mut at, mut jpg, mut fixed) = (0, Vec::new(), Vec::new());
        for row in 0..rows {
            let bytes = if row % 7 == 3 { 0 } else { row * 37 % 90 };
            jpg.push(at + 12..at + 12 + bytes);
            fixed.push(at + 20 + bytes..at + 24 + bytes);
            at += 30 + bytes;
        }
        let keys: Vec<String> = (0..rows).map(|row| format!("{index}/{row}")).collect();
        let classes: Vec<[u8; 8]> = (0..rows).map(u64::to_le_bytes).collect();
        let columns = vec![
            spans(jpg),
            spans(fixed),
            inline(classes.iter().map(<[u8; 8]>::as_slice)),
            inline(keys.iter().map(String::as_bytes)),
        ];
        group(&format!("{index}.tar"), rows, at, columns)
    };
    built(tensors, shard_bytes, rows.iter().enumerate().map(of).collect())
}

/// The byte that an object of these tests has at an offset.
fn byte_of(key: &str, offset: u64) -> u8 {
    let seed = key.bytes().fold(17u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
    (seed.wrapping_add(offset).wrapping_mul(0x9E37_79B9) >> 11).to_le_bytes()[0]
}

fn bytes_of(leaf: &Leaf, object: u32, range: Range<u64>) -> Vec<u8> {
    let found = leaf.object(object);
    assert!(range.end <= found.size_bytes, "{range:?} of {found:?}");
    range.map(|offset| byte_of(found.key, offset)).collect()
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Performs reads. Returns bytes of a region, and which of them came.
fn read(
    Snapshot { manifest, .. }: &Snapshot,
    leaf: &Leaf,
    (shard, block_bytes): (u32, u64),
    gets: &[Get],
    regions: &mut [Vec<Option<u8>>],
) {
    for get in gets {
        assert!(get.bytes() > 0);
        let (first, last) = (get.range.start, get.range.end - 1);
        assert_eq!(first / block_bytes, last / block_bytes, "a read is within a block");
        let body = bytes_of(leaf, get.object, get.range.clone());
        let mut next: Vec<u64> = get.parts.iter().map(|part| part.region.start).collect();
        let mut scatter = Scatter::new(manifest, leaf, shard, get);
        for piece in body.chunks(1 + body.len() / 3) {
            let put = |part: usize, place: u64, bytes: &[u8]| {
                assert_eq!(place, next[part], "the bytes of a part come in order");
                for &byte in bytes {
                    let place = &mut regions[get.parts[part].tensor][at(next[part])];
                    assert_eq!(place.replace(byte), None, "a byte comes once");
                    next[part] += 1;
                }
                Ok::<_, ()>(())
            };
            scatter.take(piece, put).unwrap();
        }
        let ends = get.parts.iter().map(|part| part.region.end);
        assert!(next.into_iter().eq(ends), "every part is full");
    }
}

/// Asserts that every fill plan yields the rows that are read alone.
fn check_plans(snapshot: &Snapshot, block_bytes: u64) {
    let manifest = &snapshot.manifest;
    let mut sample = 0;
    for index in 0..manifest.shard_count() {
        let (shard, leaf) = (manifest.shard(index), snapshot.leaf_of(index));
        assert_eq!(shard.first_sample, sample);
        assert!(manifest.shard_id_holds(leaf, index));
        let plan = manifest.fill_plan(leaf, index, block_bytes);
        assert_eq!(plan.regions.iter().map(|r| r.bytes).sum::<u64>(), shard.bytes);
        let empty = |region: &RegionPlan| vec![None; at(region.bytes)];
        let mut regions: Vec<Vec<Option<u8>>> = plan.regions.iter().map(empty).collect();
        let mut in_pieces = regions.clone();
        read(snapshot, leaf, (index, block_bytes), &plan.gets, &mut regions);
        let pieces =
            manifest.fill_plan_in_pieces(leaf, index, block_bytes, block_bytes.div_ceil(5)).gets;
        assert!(
            pieces.iter().map(Get::bytes).sum::<u64>() <= plan.gets.iter().map(Get::bytes).sum()
        );
        let joined = pieces.chunk_by(|one, next| one.is_near(next, block_bytes)).map(Get::of_all);
        let joined: Vec<_> = joined.collect();
        let ranges = |gets: &[Get]| -> Vec<_> {
            gets.iter().map(|get| (get.object, get.range.clone())).collect()
        };
        assert_eq!(ranges(&joined), ranges(&plan.gets), "together they are the reads of blocks");
        let mut of_joined = in_pieces.clone();
        read(snapshot, leaf, (index, block_bytes), &pieces, &mut in_pieces);
        read(snapshot, leaf, (index, block_bytes), &joined, &mut of_joined);
        assert!(in_pieces == regions && of_joined == regions);
        for tensor in plan.inline {
            let values = manifest.inline_region(leaf, index, tensor);
            regions[tensor] = values.iter().copied().map(Some).collect();
        }
        let whole = |region: Vec<Option<u8>>| region.into_iter().map(|byte| byte.unwrap());
        let regions: Vec<Vec<u8>> = regions.into_iter().map(|r| whole(r).collect()).collect();
        check_region_gets(snapshot, &regions, index, block_bytes);
        for row in 0..shard.rows {
            let row = RowRef { shard: index, row };
            assert_eq!(manifest.locate(sample), Some(row));
            for (tensor, region) in regions.iter().enumerate() {
                let (begin, bytes) = manifest.row_in_region(leaf, row, tensor);
                assert_eq!(snapshot.places().row(row, tensor), (begin, bytes));
                let expected = match manifest.row_source(leaf, row, tensor) {
                    RowOrigin::Value(value) => value.to_vec(),
                    RowOrigin::Block(..) => panic!("no rows are made here"),
                    RowOrigin::Object(RowRead { bytes: 0, .. }) => Vec::new(),
                    RowOrigin::Object(RowRead { object, offset, bytes }) => {
                        bytes_of(leaf, object, offset..offset + bytes)
                    }
                };
                assert_eq!(region[at(begin)..at(begin + bytes)], expected);
            }
            sample += 1;
        }
    }
    assert_eq!(sample, manifest.samples());
    assert_eq!(manifest.locate(sample), None);
}

/// Asserts that the reads of a few stretches of each region yield the bytes of the whole.
fn check_region_gets(snapshot: &Snapshot, regions: &[Vec<u8>], shard: u32, block_bytes: u64) {
    let (manifest, leaf) = (&snapshot.manifest, snapshot.leaf_of(shard));
    for (tensor, region) in regions.iter().enumerate() {
        if manifest.tensors()[tensor].layout() == Layout::Inline {
            continue;
        }
        let bytes = region.len() as u64;
        let ends = [0, 1, bytes / 3, bytes / 2, bytes.saturating_sub(1), bytes];
        for start in ends {
            for wanted in ends.map(|end| start..end.max(start).min(bytes)) {
                let place = RegionRef { shard, tensor };
                let gets = manifest.region_gets(leaf, place, &wanted, block_bytes);
                let mut came: Vec<Vec<Option<u8>>> =
                    regions.iter().map(|region| vec![None; region.len()]).collect();
                read(snapshot, leaf, (shard, block_bytes), &gets, &mut came);
                for (place, came) in came[tensor].iter().enumerate() {
                    let inside = wanted.contains(&(place as u64));
                    assert_eq!(*came, inside.then_some(region[place]), "{wanted:?} of a region");
                }
            }
        }
    }
}

#[test]
fn manifest_holds_what_was_put_into_it() {
    let snapshot = pairs(&[5, 7], 1 << 20);
    let manifest = &snapshot.manifest;
    assert_eq!(manifest.samples(), 12);
    assert_eq!(manifest.uri(), &uri());
    let names: Vec<_> = manifest.tensors().iter().map(|t| (t.name(), t.row_bytes())).collect();
    assert_eq!(names, [("image", 10), ("label", 3)]);
    let object = snapshot.leaves[0].object(1);
    assert_eq!((object.key, object.etag, object.version), ("part-1", Some("\"part-1\""), None));
    assert_eq!(object.size_bytes, 8 + 7 * 13);
    let again = Manifest::parse(Bytes::copy_from_slice(manifest.as_bytes())).unwrap();
    assert_eq!(again.snapshot(), manifest.snapshot());
}

#[test]
fn splits_large_objects_at_rows_and_joins_small_neighbours() {
    let snapshot = pairs(&[1000, 2, 3, 4, 500], 4096);
    let manifest = &snapshot.manifest;
    let rows: Vec<u32> = (0..manifest.shard_count()).map(|s| manifest.shard(s).rows).collect();
    assert_eq!(rows, [250, 250, 250, 250, 9, 250, 250]);
    for part in [1, 3, 7, 10, 64, 1000, 1 << 20] {
        check_plans(&snapshot, part);
    }
}

#[test]
fn a_row_larger_than_a_shard_makes_a_shard_of_one_row() {
    let groups = vec![group("a", 3, 30_000, vec![column(0, 10_000)])];
    let snapshot = built(vec![strided("x", 10_000)], 4096, groups);
    let rows: Vec<_> = (0..3).map(|shard| snapshot.manifest.shard(shard).rows).collect();
    assert_eq!(rows, [1, 1, 1]);
    check_plans(&snapshot, 4096);
}

#[test]
fn a_row_larger_than_the_limit_is_refused() {
    let huge = limits::SAMPLE_BYTES_MAX + 1;
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", huge)], 4096);
    builder.push(group("a", 1, huge, vec![column(0, huge)]));
    assert!(matches!(builder.build(), Err(BuildError::TooMuch { .. })));
}

#[test]
fn allocates_no_memory_for_rows_that_a_file_only_claims() {
    let rows = 1 << 62;
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 1)], limits::SHARD_BYTES_MAX);
    builder.push(group("a", rows, rows, vec![column(0, 1)]));
    let refused = builder.build().unwrap_err();
    assert!(matches!(refused, BuildError::TooMuch { what: "shards:", .. }), "{refused}");
}

#[test]
fn a_shard_that_no_node_could_hold_is_refused() {
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 1 << 20)], 4 << 30);
    builder.push(group("a", 2_000, 2_000 << 20, vec![column(0, 1 << 20)]));
    let refused = builder.build().unwrap_err().to_string();
    assert!(refused.contains("larger than a shard may be"), "{refused}");
}

#[test]
fn windows_overlap_in_an_object_and_never_cross_objects() {
    let locator = RowLocator::Strided { row_bytes: 16, stride_bytes: 4 };
    let (name, logical, layout) = ("tokens".into(), Logical::Number, Layout::Column);
    let tokens = TensorSpec { name, dtype: Dtype::U16, logical, shape: vec![8], locator, layout };
    let windows = |key, rows, bytes| group(key, rows, bytes, vec![column(0, 4)]);
    let groups = vec![windows("a", 30, 29 * 4 + 16), windows("b", 2, 20), windows("c", 1, 16)];
    let snapshot = built(vec![tokens], 64, groups);
    let manifest = &snapshot.manifest;
    let rows: Vec<u32> = (0..manifest.shard_count()).map(|s| manifest.shard(s).rows).collect();
    assert_eq!(rows, [10, 10, 10, 2, 1]);
    for part in [3, 4, 16, 33, 4096] {
        check_plans(&snapshot, part);
    }
}

#[test]
fn rows_with_spans_are_located_one_by_one() {
    let of = |key, label, rows: Vec<Range<u64>>| {
        let count = rows.len() as u64;
        group(key, count, 1000, vec![column(label, 2), spans(rows)])
    };
    let groups = vec![
        of("a.tar", 900, vec![0..10, 10..60, 100..100, 200..260]),
        of("b.tar", 0, vec![500..501, 4..10]),
    ];
    let snapshot = built(vec![strided("label", 2), ragged("jpeg", Layout::Spans)], 64, groups);
    let manifest = &snapshot.manifest;
    assert!(manifest.shard_count() > 1);
    for part in [7, 64, 4096] {
        check_plans(&snapshot, part);
    }
    let row = manifest.locate(3).unwrap();
    let source = manifest.row_source(snapshot.leaf_of(row.shard), row, 1);
    assert_eq!(source, RowOrigin::Object(RowRead { object: 0, offset: 200, bytes: 60 }));
}

#[test]
fn members_with_gaps_share_reads_with_other_tensors() {
    let snapshot = members(&[100, 3, 50], 1 << 20);
    assert_eq!(snapshot.manifest.shard_count(), 1);
    let plan = snapshot.manifest.fill_plan(&snapshot.leaves[0], 0, 8 << 20);
    assert_eq!(plan.gets.len(), 3, "one read for each tar");
    assert_eq!(plan.inline, [2, 3]);
    for (shard_bytes, block) in [(1 << 20, 8 << 20), (1 << 20, 64), (900, 1 << 20), (900, 33)] {
        check_plans(&members(&[100, 3, 50], shard_bytes), block);
    }
}

#[test]
fn refuses_shard_that_needs_too_many_reads() {
    let shard_of = |rows: u64, apart: u64| {
        let tensors = vec![ragged("jpeg", Layout::Spans)];
        let mut builder = ManifestBuilder::new(uri(), tensors, 1 << 20);
        let places = spans((0..rows).map(|row| row * apart..row * apart + 2));
        builder.push(group("a", rows, rows * apart, vec![places]));
        builder.build()
    };
    let most = u64::from(limits::SHARD_READS_MAX);
    let far = limits::READ_GAP_BYTES_MAX + 3;
    let apart = shard_of(most, far).unwrap();
    let gets = apart.manifest.fill_plan(&apart.leaves[0], 0, 1 << 40).gets;
    assert_eq!(gets.len() as u64, most);
    let near = shard_of(most + 1, far - 1).unwrap();
    assert_eq!((near.manifest.shard_count(), near.manifest.shard(0).bytes), (1, 2 * (most + 1)));
    let refused = shard_of(most + 1, far).unwrap_err().to_string();
    assert!(refused.contains("rows that lie far apart"), "{refused}");
}

#[test]
fn rows_beyond_four_gib_of_an_object_are_found() {
    let places = [0..4, 1 << 33..(1 << 33) + 5, 6..9, 1 << 40..(1 << 40) + 1];
    let groups = vec![group("a", 4, 1 << 41, vec![spans(places)])];
    check_plans(&built(vec![ragged("x", Layout::Spans)], 1 << 20, groups), 8 << 20);
}

#[test]
fn tensors_of_a_sample_can_be_in_several_objects() {
    let of = |index| {
        let objects = ["image", "label"].map(|name| object(&format!("{name}-{index}.npy"), 178));
        let columns = vec![column(128, 10), ColumnSpec { object: 1, ..column(128, 1) }];
        GroupSpec { rows: 5, objects: objects.into(), columns }
    };
    let snapshot =
        built(vec![strided("image", 10), strided("label", 1)], 64, (0..3).map(of).collect());
    check_plans(&snapshot, 20);
    let row = snapshot.manifest.locate(7).unwrap();
    let leaf = snapshot.leaf_of(row.shard);
    let source = snapshot.manifest.row_source(leaf, row, 1);
    let RowOrigin::Object(read) = source else { panic!("in the leaf") };
    assert_eq!((leaf.object(read.object).key, read.offset), ("label-1.npy", 130));
}

#[test]
fn many_rows_are_divided_among_leaves() {
    // The tables of a row take 8 bytes, and a leaf is full at 4 MiB.
    let rows = ((2 * 4) << 20) / 8;
    let places = spans((0..rows).map(|row| row..row + 1));
    let groups = vec![group("a", rows, rows, vec![places])];
    let snapshot = built(vec![ragged("x", Layout::Spans)], 100_000, groups);
    assert_eq!(snapshot.manifest.leaf_count(), 2);
    let shards: Vec<u32> = snapshot.leaves.iter().flat_map(Leaf::shards).collect();
    assert!(shards.into_iter().eq(0..snapshot.manifest.shard_count()));
    let last = snapshot.manifest.shard_count() - 1;
    let (leaf, places) = (snapshot.leaf_of(last), snapshot.places());
    let end = snapshot.manifest.region(last, 0).bytes;
    let row = snapshot.manifest.shard(last).rows - 1;
    assert_eq!((leaf.number(), places.row(RowRef { shard: last, row }, 0)), (1, (end - 1, 1)));
}

#[test]
fn long_inline_rows_are_refused() {
    let long = vec![7; at(limits::INLINE_ROW_BYTES_MAX) + 1];
    let of = |value: &[u8]| {
        let tensors = vec![ragged("key", Layout::Inline)];
        let mut builder = ManifestBuilder::new(uri(), tensors, 1 << 20);
        builder.push(group("a", 1, 1, vec![inline([value])]));
        builder.build()
    };
    check_plans(&of(&long[1..]).unwrap(), 64);
    let refused = of(&long).unwrap_err().to_string();
    assert!(refused.contains("an inline row that is too long"), "{refused}");
}

#[test]
fn shard_ids_depend_on_bytes_and_not_on_shard_bounds() {
    let one = pairs(&[5, 7], 4096);
    let same = pairs(&[5, 7], 4096);
    assert_eq!(one.manifest.snapshot(), same.manifest.snapshot());
    assert_eq!(one.manifest.shard(0).id, same.manifest.shard(0).id);
    let with_etag = |etag: &str| {
        let mut only = group("a", 2, 20, vec![column(0, 10)]);
        only.objects[0].etag = Some(etag.into());
        built(vec![strided("x", 10)], 4096, vec![only]).manifest.shard(0).id
    };
    assert_ne!(with_etag("\"1\""), with_etag("\"2\""), "another etag is another id");
    let with_key = |key: &[u8]| {
        let groups = vec![group("a", 1, 1, vec![inline([key])])];
        built(vec![ragged("key", Layout::Inline)], 4096, groups).manifest.shard(0).id
    };
    assert_ne!(with_key(b"1"), with_key(b"2"), "another value is another id");
}

#[test]
fn pinned_checksums_make_other_shards() {
    let plain = pairs(&[1000], 4096);
    let digest = |shard: u64| [u8::try_from(shard).unwrap(); 32];
    let sums: Vec<_> =
        (0..u64::from(plain.manifest.shard_count())).map(|s| (s, digest(s))).collect();
    let pinned = plain.with_checksums(&sums).unwrap();
    check_plans(&pinned, 64);
    let [before, after] = [&plain, &pinned].map(|snapshot| &snapshot.manifest);
    assert_ne!(before.snapshot(), after.snapshot());
    assert_ne!(before.shard(1).id, after.shard(1).id);
    assert_eq!((before.shard(1).checksum, after.shard(1).checksum), (None, Some(1)));
    let sha256 = |snapshot: &Snapshot| snapshot.leaf_of(1).shard_sha256(1);
    assert_eq!((sha256(&plain), sha256(&pinned)), (None, Some(digest(1))));
    assert!(before.contents().is_none() && after.contents().is_some());
    assert!(plain.with_checksums(&sums[1..]).is_err());
    let mut others = sums.clone();
    others[0].1[0] ^= 1;
    let other = plain.with_checksums(&others).unwrap();
    assert_ne!(other.manifest.contents(), after.contents());
}

#[test]
fn id_of_other_bytes_is_detected() {
    let snapshot = pairs(&[1000], 4096);
    let mut bytes = snapshot.manifest.as_bytes().to_vec();
    bytes[snapshot.manifest.tables().shards] ^= 1;
    let forged = Manifest::parse(Bytes::from(bytes)).unwrap();
    let leaf = Bytes::copy_from_slice(snapshot.leaves[0].as_bytes());
    let leaf = Leaf::over(&forged, 0, Arc::new(leaf)).unwrap();
    assert!(!forged.shard_id_holds(&leaf, 0) && forged.shard_id_holds(&leaf, 1));
}

/// A copy with the numbers of the samples as the keys of the last tensor.
fn keyed(manifest: &Manifest) -> Manifest {
    let tensor = manifest.tensors().len() - 1;
    let kind = KeyKind::of(&manifest.tensors()[tensor]).unwrap();
    let texts: Vec<_> =
        (0..manifest.samples()).map(|sample| (sample, sample.to_string())).collect();
    let of = |(sample, text): &(u64, String)| {
        record(Key::Text(text.as_bytes()).fingerprint(kind).unwrap(), *sample)
    };
    let mut records: Vec<u128> = texts.iter().map(of).collect();
    records.sort_unstable();
    manifest.with_keys(tensor, &records).unwrap()
}

#[test]
fn copy_with_keys_differs_in_nothing_else() {
    for plain in [pairs(&[40, 2, 9], 256), members(&[40, 2, 9], 256)] {
        let (plain, leaves) = (&plain.manifest, &plain.leaves);
        assert!(plain.key_table().is_none() && plain.key_of().is_none());
        let keyed = keyed(plain);
        assert_eq!((keyed.uri(), keyed.tensors()), (plain.uri(), plain.tensors()));
        assert_eq!(keyed.key_of(), Some(plain.snapshot()));
        assert_ne!(keyed.snapshot(), plain.snapshot());
        for shard in 0..plain.shard_count() {
            assert_eq!(keyed.shard(shard), plain.shard(shard));
            assert_eq!(keyed.regions(shard), plain.regions(shard));
        }
        for leaf in leaves {
            Leaf::over(&keyed, leaf.number(), Arc::new(leaf.as_bytes().to_vec())).unwrap();
        }
        let table = keyed.key_table().unwrap();
        for sample in 0..plain.samples() {
            assert_eq!(table.find(Key::Text(sample.to_string().as_bytes())), Some(sample));
        }
        assert_eq!(table.find(Key::Text(b"none")), None);
    }
}

#[test]
fn damage_is_refused_with_its_reason() {
    let snapshot = pairs(&[5, 7], 4096);
    let bytes = snapshot.manifest.as_bytes().to_vec();
    let parse = |bytes: Vec<u8>| Manifest::parse(Bytes::from(bytes)).unwrap_err();
    assert_eq!(parse(Vec::new()), ManifestError::NotAManifest);
    assert_eq!(
        parse(bytes[..bytes.len() - 1].to_vec()),
        ManifestError::Length { said: bytes.len() as u64, found: bytes.len() as u64 - 1 }
    );
    let mut other = bytes[..128].to_vec();
    other[8] = 1;
    assert_eq!(parse(other), ManifestError::Version { found: 1 });
    let mut leaf = snapshot.leaves[0].as_bytes().to_vec();
    *leaf.last_mut().unwrap() ^= 1;
    let refused = Leaf::over(&snapshot.manifest, 0, Arc::new(leaf)).unwrap_err();
    assert_eq!(refused, ManifestError::Damaged);
}

#[test]
fn metadata_comes_back() {
    let builder = ManifestBuilder::new(uri(), vec![strided("x", 10)], 4096);
    let mut builder = builder.with_metadata("{\"names\": [\"cat\"]}".into());
    builder.push(group("a", 2, 20, vec![column(0, 10)]));
    assert_eq!(builder.build().unwrap().manifest.metadata(), "{\"names\": [\"cat\"]}");
}

#[test]
fn manifest_of_a_million_shards_opens() {
    let rows_each = 4096 / 16;
    let of = |index| {
        let rows = rows_each * 1000;
        group(&format!("part-{index:04}"), rows, rows * 16, vec![column(0, 16)])
    };
    let snapshot = built(vec![strided("x", 16)], 4096, (0..1000).map(of).collect());
    assert_eq!(snapshot.manifest.shard_count(), 1_000_000);
    let bytes = Bytes::copy_from_slice(snapshot.manifest.as_bytes());
    #[expect(clippy::disallowed_methods, reason = "the time is printed, nothing depends on it")]
    let begin = std::time::Instant::now();
    let again = Manifest::parse(bytes).unwrap();
    println!("a million shards, {} bytes: parsed in {:?}", again.as_bytes().len(), begin.elapsed());
    assert!(again.as_bytes().len() < 65_000_000, "64 bytes a shard");
    assert_eq!(again.locate(rows_each * 999_999), Some(RowRef { shard: 999_999, row: 0 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_shard_size_locates_each_sample_once(
        rows in prop::collection::vec(1u64..200, 1..8),
        shard_bytes in 1u64..3000,
        part_bytes in 1u64..500,
        has_columns in any::<bool>(),
    ) {
        let make = if has_columns { pairs } else { members };
        check_plans(&make(&rows, shard_bytes), part_bytes);
    }
}
