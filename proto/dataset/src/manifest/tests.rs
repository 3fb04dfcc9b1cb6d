//! Tests of building, parsing and using manifests together.

use bytes::Bytes;
use larder_base::limits;
use proptest::prelude::*;

use super::*;

fn uri() -> OriginUri {
    OriginUri::parse("s3://bucket/data").unwrap()
}

fn strided(name: &str, elements: u64, slot: u32) -> TensorSpec {
    let locator = RowLocator::Strided { row_bytes: elements, stride_bytes: elements };
    TensorSpec { name: name.into(), dtype: Dtype::U8, shape: vec![elements], slot, locator }
}

fn ragged(name: &str) -> TensorSpec {
    let locator = RowLocator::Spans;
    TensorSpec { name: name.into(), dtype: Dtype::U8, shape: Vec::new(), slot: 0, locator }
}

fn object(key: &str, size_bytes: u64, columns: &[u64]) -> ObjectSpec {
    let etag = Some(format!("\"{key}\""));
    ObjectSpec { key: key.into(), etag, version: None, size_bytes, columns: columns.to_vec() }
}

fn group(key: &str, rows: u64, size_bytes: u64, columns: &[u64]) -> GroupSpec {
    GroupSpec { rows, objects: vec![object(key, size_bytes, columns)], spans: Vec::new() }
}

/// Makes two tensors of 10 and 3 bytes a row. Each object has all rows of the first, then of the
/// second.
fn pairs(rows: &[u64], shard_bytes: u64) -> Manifest {
    let tensors = vec![strided("image", 10, 0), strided("label", 3, 0)];
    let mut builder = ManifestBuilder::new(uri(), tensors, shard_bytes);
    for (index, rows) in rows.iter().enumerate() {
        builder.push(group(&format!("part-{index}"), *rows, 8 + rows * 13, &[8, 8 + rows * 10]));
    }
    builder.build().unwrap()
}

/// Asserts the invariants of every fill plan, and that rows read alone lie at their planned places.
fn check_plans(manifest: &Manifest, part_bytes: u64) {
    let mut sample = 0;
    for index in 0..manifest.shard_count() {
        let shard = manifest.shard(index);
        assert_eq!(shard.first_sample, sample);
        assert!(manifest.shard_id_holds(index));
        let plan = manifest.fill_plan(index, part_bytes);
        assert_eq!(plan.regions.iter().map(|r| r.bytes).sum::<u64>(), shard.bytes);
        let mut reads = plan.reads.iter().peekable();
        for (tensor, region) in plan.regions.iter().enumerate() {
            let mut at = 0;
            while let Some(read) = reads.next_if(|read| read.tensor == tensor) {
                assert_eq!(
                    read.region_offset, at,
                    "reads follow one another without gap or overlap"
                );
                assert!(read.bytes > 0);
                let (first, last) = (read.object_offset, read.object_offset + read.bytes - 1);
                assert_eq!(first / part_bytes, last / part_bytes, "a read is within a block");
                assert!(read.object_offset + read.bytes <= manifest.object(read.object).size_bytes);
                at += read.bytes;
            }
            assert_eq!(at, region.bytes, "reads cover the region");
        }
        assert!(reads.next().is_none());
        check_region_reads(manifest, &plan, index, part_bytes);
        for row in 0..shard.rows {
            assert_eq!(manifest.locate(sample), Some((index, row)));
            for tensor in 0..manifest.tensors().len() {
                check_row(manifest, &plan, index, row, tensor);
            }
            sample += 1;
        }
    }
    assert_eq!(sample, manifest.samples());
    assert_eq!(manifest.locate(sample), None);
}

/// Asserts that the reads of a few stretches of each region equal those of the whole plan.
fn check_region_reads(manifest: &Manifest, plan: &FillPlan, shard: u32, part_bytes: u64) {
    for (tensor, region) in plan.regions.iter().enumerate() {
        let ends = [
            0,
            1,
            region.bytes / 3,
            region.bytes / 2,
            region.bytes.saturating_sub(1),
            region.bytes,
        ];
        for start in ends {
            for wanted in ends.map(|end| start..end) {
                let mut at = wanted.start;
                for read in manifest.region_reads(shard, tensor, &wanted, part_bytes) {
                    assert_eq!((read.tensor, read.region_offset), (tensor, at));
                    let holds = |part: &&PartRead| {
                        let end = part.region_offset + part.bytes;
                        part.tensor == tensor && part.region_offset <= at && at + read.bytes <= end
                    };
                    let part = plan.reads.iter().find(holds).expect("it is cut nowhere else");
                    let object_offset = part.object_offset + (at - part.region_offset);
                    assert_eq!((read.object, read.object_offset), (part.object, object_offset));
                    at += read.bytes;
                }
                assert_eq!(at, wanted.end.max(wanted.start), "{wanted:?} of a region");
            }
        }
    }
}

fn check_row(manifest: &Manifest, plan: &FillPlan, shard: u32, row: u32, tensor: usize) {
    let read = manifest.row_read(shard, row, tensor);
    let (offset, bytes) = manifest.row_in_region(shard, row, tensor);
    assert_eq!(read.bytes, bytes);
    for byte in [0, bytes.saturating_sub(1)] {
        if bytes == 0 {
            continue;
        }
        let in_region = offset + byte;
        let part = plan
            .reads
            .iter()
            .find(|p| {
                p.tensor == tensor
                    && (p.region_offset..p.region_offset + p.bytes).contains(&in_region)
            })
            .unwrap();
        assert_eq!(part.object, read.object);
        assert_eq!(
            part.object_offset + (in_region - part.region_offset),
            read.object_offset + byte
        );
    }
}

#[test]
fn manifest_holds_what_was_put_into_it() {
    let manifest = pairs(&[5, 7], 1 << 20);
    assert_eq!(manifest.samples(), 12);
    assert_eq!(manifest.uri(), &uri());
    let names: Vec<_> = manifest.tensors().iter().map(|t| (t.name(), t.row_bytes())).collect();
    assert_eq!(names, [("image", 10), ("label", 3)]);
    let object = manifest.object(1);
    assert_eq!((object.key, object.etag, object.version), ("part-1", Some("\"part-1\""), None));
    assert_eq!(object.size_bytes, 8 + 7 * 13);
    let again = Manifest::parse(Bytes::copy_from_slice(manifest.as_bytes())).unwrap();
    assert_eq!(again.snapshot(), manifest.snapshot());
}

#[test]
fn splits_large_objects_at_rows_and_joins_small_neighbours() {
    let manifest = pairs(&[1000, 2, 3, 4, 500], 4096);
    let rows: Vec<u32> = (0..manifest.shard_count()).map(|s| manifest.shard(s).rows).collect();
    assert_eq!(rows, [250, 250, 250, 250, 9, 250, 250]);
    for part in [1, 3, 7, 10, 64, 1000, 1 << 20] {
        check_plans(&manifest, part);
    }
}

#[test]
fn a_row_larger_than_a_shard_makes_a_shard_of_one_row() {
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 10_000, 0)], 4096);
    builder.push(group("a", 3, 30_000, &[0]));
    let manifest = builder.build().unwrap();
    assert_eq!((0..3).map(|s| manifest.shard(s).rows).collect::<Vec<_>>(), [1, 1, 1]);
    check_plans(&manifest, 4096);
}

#[test]
fn a_row_larger_than_the_limit_is_refused() {
    let huge = limits::SAMPLE_BYTES_MAX + 1;
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", huge, 0)], 4096);
    builder.push(group("a", 1, huge, &[0]));
    assert!(matches!(builder.build(), Err(BuildError::TooMuch { .. })));
}

#[test]
fn allocates_no_memory_for_rows_that_a_file_only_claims() {
    let rows = 1 << 62;
    let mut builder =
        ManifestBuilder::new(uri(), vec![strided("x", 1, 0)], limits::SHARD_BYTES_MAX);
    builder.push(group("a", rows, rows, &[0]));
    let refused = builder.build().unwrap_err();
    assert!(matches!(refused, BuildError::TooMuch { what: "shards:", .. }), "{refused}");
}

#[test]
fn a_shard_that_no_node_could_hold_is_refused() {
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 1 << 20, 0)], 4 << 30);
    builder.push(group("a", 2_000, 2_000 << 20, &[0]));
    let refused = builder.build().unwrap_err().to_string();
    assert!(refused.contains("larger than a shard may be"), "{refused}");
}

#[test]
fn windows_overlap_in_an_object_and_never_cross_objects() {
    let locator = RowLocator::Strided { row_bytes: 16, stride_bytes: 4 };
    let tokens =
        TensorSpec { name: "tokens".into(), dtype: Dtype::U16, shape: vec![8], slot: 0, locator };
    let mut builder = ManifestBuilder::new(uri(), vec![tokens], 64);
    builder.push(group("a", 30, 29 * 4 + 16, &[0]));
    builder.push(group("b", 2, 20, &[0]));
    builder.push(group("c", 1, 16, &[0]));
    let manifest = builder.build().unwrap();
    let rows: Vec<u32> = (0..manifest.shard_count()).map(|s| manifest.shard(s).rows).collect();
    assert_eq!(rows, [10, 10, 10, 2, 1]);
    for part in [3, 4, 16, 33, 4096] {
        check_plans(&manifest, part);
    }
}

#[test]
fn rows_with_spans_are_located_one_by_one() {
    let tensors = vec![strided("label", 2, 0), ragged("jpeg")];
    let mut builder = ManifestBuilder::new(uri(), tensors, 64);
    let mut first = group("a.tar", 4, 1000, &[900]);
    first.spans = vec![vec![0..10, 10..60, 100..100, 200..260]];
    let mut second = group("b.tar", 2, 1000, &[0]);
    second.spans = vec![vec![500..501, 4..10]];
    builder.push(first);
    builder.push(second);
    let manifest = builder.build().unwrap();
    assert!(manifest.shard_count() > 1);
    for part in [7, 64, 4096] {
        check_plans(&manifest, part);
    }
    let (shard, row) = manifest.locate(3).unwrap();
    let read = manifest.row_read(shard, row, 1);
    assert_eq!((read.object, read.object_offset, read.bytes), (0, 200, 60));
}

#[test]
fn refuses_shard_that_needs_too_many_reads() {
    let shard_of = |rows: u64, apart: u64| {
        let mut builder = ManifestBuilder::new(uri(), vec![ragged("jpeg")], 1 << 20);
        let mut group = group("a", rows, 1 << 20, &[]);
        group.spans = vec![(0..rows).map(|row| row * apart..row * apart + 2).collect()];
        builder.push(group);
        builder.build()
    };
    let most = u64::from(limits::SHARD_READS_MAX);
    assert_eq!(shard_of(most, 3).unwrap().fill_plan(0, 1 << 20).reads.len() as u64, most);
    let side_by_side = shard_of(most + 1, 2).unwrap();
    assert_eq!((side_by_side.shard_count(), side_by_side.shard(0).bytes), (1, 2 * (most + 1)));
    let refused = shard_of(most + 1, 3).unwrap_err().to_string();
    assert!(refused.contains("more places"), "{refused}");
}

#[test]
fn tensors_of_a_sample_can_be_in_several_objects() {
    let tensors = vec![strided("image", 10, 0), strided("label", 1, 1)];
    let mut builder = ManifestBuilder::new(uri(), tensors, 64);
    for index in 0..3 {
        let image = object(&format!("image-{index}.npy"), 128 + 50, &[128]);
        let label = object(&format!("label-{index}.npy"), 128 + 5, &[128]);
        builder.push(GroupSpec { rows: 5, objects: vec![image, label], spans: Vec::new() });
    }
    let manifest = builder.build().unwrap();
    check_plans(&manifest, 20);
    let (shard, row) = manifest.locate(7).unwrap();
    let read = manifest.row_read(shard, row, 1);
    assert_eq!((manifest.object(read.object).key, read.object_offset), ("label-1.npy", 130));
}

#[test]
fn keeps_more_tensors_than_fit_an_object_record() {
    let tensors: Vec<_> = (0..9).map(|t| strided(&format!("t{t}"), 4, 0)).collect();
    let mut builder = ManifestBuilder::new(uri(), tensors, 4096);
    for index in 0..2 {
        let columns: Vec<u64> = (0..9).map(|t| t * 40).collect();
        builder.push(group(&format!("o{index}"), 10, 360, &columns));
    }
    let manifest = builder.build().unwrap();
    check_plans(&manifest, 4096);
    assert_eq!(manifest.row_read(0, 2, 8).object_offset, 8 * 40 + 8);
}

#[test]
fn shard_ids_depend_on_bytes_and_not_on_shard_bounds() {
    let one = pairs(&[5, 7], 4096);
    let same = pairs(&[5, 7], 4096);
    assert_eq!(one.snapshot(), same.snapshot());
    assert_eq!(one.shard(0).id, same.shard(0).id);
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 10, 0)], 4096);
    let mut changed = builder_with(&mut builder, "\"1\"");
    let first = changed.shard(0).id;
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 10, 0)], 4096);
    changed = builder_with(&mut builder, "\"2\"");
    assert_ne!(first, changed.shard(0).id, "another etag is another id");
}

fn builder_with(builder: &mut ManifestBuilder, etag: &str) -> Manifest {
    let mut only = group("a", 2, 20, &[0]);
    only.objects[0].etag = Some(etag.into());
    builder.push(only);
    builder.build().unwrap()
}

#[test]
fn pinned_checksums_make_other_shards() {
    let plain = pairs(&[1000], 4096);
    let sums: Vec<u64> = (0..u64::from(plain.shard_count())).collect();
    let pinned = plain.with_checksums(&sums).unwrap();
    assert_ne!(plain.snapshot(), pinned.snapshot());
    assert_ne!(plain.shard(1).id, pinned.shard(1).id);
    assert!(plain.shard_id_holds(1) && pinned.shard_id_holds(1));
    assert_eq!((plain.shard(1).checksum, pinned.shard(1).checksum), (None, Some(1)));
    assert!(plain.with_checksums(&sums[1..]).is_err());
}

#[test]
fn id_of_other_bytes_is_detected() {
    let manifest = pairs(&[1000], 4096);
    let mut bytes = manifest.as_bytes().to_vec();
    let at = manifest.tables().shards;
    bytes[at] ^= 1;
    let hash = format::hash(&bytes);
    bytes[format::HASH_AT].copy_from_slice(&hash);
    let forged = Manifest::parse(Bytes::from(bytes)).unwrap();
    assert!(!forged.shard_id_holds(0) && forged.shard_id_holds(1));
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
    let ten: Vec<_> = (0..9).map(|t| strided(&format!("t{t}"), 4, 0)).collect();
    let mut wide = ManifestBuilder::new(uri(), ten, 64);
    wide.push(group("o", 10, 360, &(0..9).map(|t| t * 40).collect::<Vec<u64>>()));
    for plain in [pairs(&[40, 2, 9], 256), wide.build().unwrap()] {
        assert!(plain.key_table().is_none() && plain.key_of().is_none());
        let keyed = keyed(&plain);
        check_plans(&keyed, 64);
        assert_eq!((keyed.uri(), keyed.tensors()), (plain.uri(), plain.tensors()));
        assert_eq!(keyed.key_of(), Some(plain.snapshot()));
        assert_ne!(keyed.snapshot(), plain.snapshot());
        for shard in 0..plain.shard_count() {
            assert_eq!(keyed.shard(shard), plain.shard(shard));
            assert_eq!(keyed.fill_plan(shard, 64), plain.fill_plan(shard, 64));
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
    let bytes = pairs(&[5, 7], 4096).as_bytes().to_vec();
    let parse = |bytes: Vec<u8>| Manifest::parse(Bytes::from(bytes)).unwrap_err();
    assert_eq!(parse(Vec::new()), ManifestError::NotAManifest);
    assert_eq!(
        parse(bytes[..bytes.len() - 1].to_vec()),
        ManifestError::Length { said: bytes.len() as u64, found: bytes.len() as u64 - 1 }
    );
    let mut other = bytes.clone();
    other[8] = 2;
    assert_eq!(parse(other), ManifestError::Version { found: 2 });
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(parse(flipped), ManifestError::Checksum);
}

#[test]
fn two_tensors_in_one_column_are_refused() {
    let bytes = pairs(&[5, 7], 4096).as_bytes().to_vec();
    // One of them is the column of the second tensor.
    let ones = (0..bytes.len()).filter(|&at| bytes[at] == 1);
    let refused = ones.filter_map(|at| {
        let mut bytes = bytes.clone();
        bytes[at] = 0;
        Manifest::parse(rehash(bytes)).err()
    });
    assert!(refused.into_iter().any(|why| why.to_string().contains("has the column of another")));
}

#[test]
fn manifest_of_a_million_shards_opens() {
    let rows_each = 4096 / 16;
    let mut builder = ManifestBuilder::new(uri(), vec![strided("x", 16, 0)], 4096);
    for index in 0..1000 {
        let rows = rows_each * 1000;
        builder.push(group(&format!("part-{index:04}"), rows, rows * 16, &[0]));
    }
    let manifest = builder.build().unwrap();
    assert_eq!(manifest.shard_count(), 1_000_000);
    let bytes = Bytes::copy_from_slice(manifest.as_bytes());
    #[expect(clippy::disallowed_methods, reason = "the time is printed, nothing depends on it")]
    let begin = std::time::Instant::now();
    let again = Manifest::parse(bytes).unwrap();
    println!("a million shards, {} bytes: parsed in {:?}", again.as_bytes().len(), begin.elapsed());
    assert!(again.as_bytes().len() < 65_000_000, "64 bytes a shard");
    assert_eq!(again.locate(rows_each * 999_999), Some((999_999, 0)));
}

/// Writes a valid hash into damaged bytes, so that the later checks are reached.
fn rehash(mut bytes: Vec<u8>) -> Bytes {
    if bytes.len() >= Header::BYTES {
        let hash = format::hash(&bytes);
        bytes[format::HASH_AT].copy_from_slice(&hash);
    }
    Bytes::from(bytes)
}

proptest! {
    #[test]
    fn damaged_manifest_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
        has_keys in any::<bool>(),
    ) {
        let plain = pairs(&[40, 2, 9], 256);
        let sound = if has_keys { keyed(&plain) } else { plain };
        let mut bytes = sound.as_bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(manifest) = Manifest::parse(rehash(bytes)) {
            if let Some(table) = manifest.key_table() {
                let found = table.find(Key::Text(b"7"));
                prop_assert!(found.is_none_or(|sample| sample < manifest.samples()));
            }
            for sample in 0..manifest.samples() {
                let (shard, row) = manifest.locate(sample).unwrap();
                for tensor in 0..manifest.tensors().len() {
                    manifest.row_read(shard, row, tensor);
                }
            }
            for shard in 0..manifest.shard_count() {
                manifest.fill_plan(shard, 64);
                manifest.shard_id_holds(shard);
            }
        }
    }

    #[test]
    fn any_shard_size_locates_each_sample_once(
        rows in prop::collection::vec(1u64..300, 1..12),
        shard_bytes in 1u64..3000,
        part_bytes in 1u64..500,
    ) {
        check_plans(&pairs(&rows, shard_bytes), part_bytes);
    }
}
